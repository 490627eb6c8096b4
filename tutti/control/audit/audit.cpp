#include "tutti/control/audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/audit/replay.h"
#include "tutti/control/jobs/job_table.h"

namespace tutti::control {
namespace {

constexpr std::string_view kHashKey = ",\"hash\":\"";
constexpr size_t kHashDigits = 64;
constexpr size_t kMostFindings = 20;

// A line's text without its hash, and the hash; empty where the line does not end with one.
struct Halves {
  std::string_view body;
  std::string_view hash;
};
Halves halves_of(std::string_view line) {
  const size_t tail = kHashKey.size() + kHashDigits + 2;
  if (line.size() < tail) return {};
  const size_t at = line.size() - tail;
  if (line.substr(at, kHashKey.size()) != kHashKey || line.substr(line.size() - 2) != "\"}") {
    return {};
  }
  return {line.substr(0, at), line.substr(at + kHashKey.size(), kHashDigits)};
}

// Walks a chain from its start and notes where it breaks.
class ChainWalk {
 public:
  explicit ChainWalk(AuditVerdict& verdict) : verdict_(verdict) {}

  void take(std::string_view line, const std::string& where) {
    const Halves halves = halves_of(line);
    if (halves.body.empty()) {
      note(where, "is not an audit log line");
      return;
    }
    if (sha256_hex(halves.body) != halves.hash) note(where, "was edited: its hash is not its own");
    try {
      const Json json = parse_json(line, where);
      const int64_t expected = next_;
      const auto seq = json_get<int64_t>(json, "seq", where);
      if (seq != next_) {
        note(where, seq > next_
                        ? fmt::format("lines {} to {} are missing before it", next_, seq - 1)
                        : fmt::format("line {} is out of order", seq));
      }
      if (seq >= next_) next_ = seq + 1;
      const bool follows = seq == expected;
      if (follows && json_get<std::string>(json, "previous", where) != previous_) {
        note(where, "does not continue the line before it");
      }
    } catch (const Error& error) {
      note(where, error.what());
      ++next_;
    }
    previous_ = std::string(halves.hash);
  }
  int64_t next() const { return next_; }

  void note(const std::string& where, const std::string& what) {
    if (verdict_.findings.size() < kMostFindings) verdict_.findings.push_back({where, what});
  }

 private:
  AuditVerdict& verdict_;
  int64_t next_ = 1;
  std::string previous_;
};

// Complete lines of the file, and what follows the last of them.
struct AuditFile {
  std::vector<std::string> lines;
  std::string rest;
};
AuditFile read_audit_file(FileSystem& files, const std::string& path) {
  AuditFile log;
  if (!files.exists(path)) return log;
  const std::string text = read_file(files, path);
  size_t at = 0;
  for (size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    log.lines.push_back(text.substr(at, end - at));
  }
  log.rest = text.substr(at);
  return log;
}

// Whether a line is whole and by the rules, whatever it says.
bool is_sound(std::string_view line) {
  const Halves halves = halves_of(line);
  return !halves.body.empty() && sha256_hex(halves.body) == halves.hash;
}

}  // namespace

AuditHead audit_head(Database& database) {
  Query query = database.query("SELECT seq, hash FROM audit_head");
  if (!query.next()) fail(ErrorKind::corrupt, "'{}': the audit log has no head", database.path());
  return {query.integer(0), query.text(1)};
}

int64_t append_audit(Database& database, const AuditLine& line) {
  const AuditHead head = audit_head(database);
  const int64_t seq = head.seq + 1;
  Json json = {{"seq", seq},
               {"time", format_utc(static_cast<double>(line.time_ms) / 1000)},
               {"time_ms", line.time_ms},
               {"who", line.who},
               {"what", line.what},
               {"on", line.on},
               {"allowed", line.allowed},
               {"detail", line.detail}};
  if (!line.client.empty()) json["client"] = line.client;
  json["previous"] = head.hash;
  std::string text = dump_json(json);
  text.pop_back();
  const std::string hash = sha256_hex(text);
  text += fmt::format("{}{}\"}}", kHashKey, hash);
  database.run("INSERT INTO audit VALUES (?, ?, ?)", seq, text, hash);
  database.run("UPDATE audit_head SET seq = ?, hash = ?", seq, hash);
  return seq;
}

void export_audit(Database& database, FileSystem& files, const std::string& path) {
  {
    // Readers do not wait for writers.
    Query behind = database.query("SELECT 1 FROM audit_head WHERE exported < seq");
    if (!behind.next()) return;
  }
  // The transaction is the lock: one process appends at a time.
  Transaction transaction(database);
  Query head = database.query("SELECT seq, exported, exported_bytes FROM audit_head");
  head.next();
  const int64_t last = head.integer(0);
  const int64_t exported = head.integer(1);
  const auto durable = static_cast<size_t>(head.integer(2));
  if (exported == last) return;
  std::string text;
  {
    Query lines = database.query("SELECT line FROM audit WHERE seq > ? ORDER BY seq", exported);
    while (lines.next()) text += lines.text(0) + "\n";
  }
  const bool is_new = !files.exists(path);
  const std::string found = is_new ? std::string() : read_file(files, path);
  if (found.size() < durable || (durable > 0 && found[durable - 1] != '\n')) {
    fail(ErrorKind::corrupt,
         "'{}': {} lines in {} bytes were written to it, and its end was cut off; `tutti audit "
         "verify` shows more",
         path, exported, durable);
  }
  const std::string_view rest = std::string_view(found).substr(durable);
  if (starts_with(text, rest)) {
    const auto file = files.open_append(path);
    file->append(text.data() + rest.size(), text.size() - rest.size());
    file->sync();
    file->close();
    if (is_new) files.sync_directory(parent_path(path));
  } else {
    if (is_sound(rest.substr(0, rest.find('\n')))) {
      fail(ErrorKind::corrupt, "'{}' differs from the database after line {}", path, exported);
    }
    // What a loss of power left of an earlier attempt.
    write_file_atomic(files, path, found.substr(0, durable) + text);
  }
  database.run("UPDATE audit_head SET exported = ?, exported_bytes = ?", last,
               static_cast<int64_t>(durable + text.size()));
  transaction.commit();
}

int64_t adopt_audit_log(Database& database, FileSystem& files, const std::string& path,
                        int64_t now_ms) {
  // Whether the file has more than the database knows of; checked again once there is no other
  // writer.
  const auto goes_on = [&] {
    Query state = database.query("SELECT exported_bytes FROM audit_head");
    state.next();
    return files.exists(path) && files.size_bytes(path) > state.integer(0);
  };
  if (!goes_on()) return 0;
  Transaction transaction(database);
  if (!goes_on()) return 0;
  AuditHead head = audit_head(database);
  const AuditFile log = read_audit_file(files, path);
  int64_t adopted = 0;
  int64_t last_job = 0;
  Json not_repeated = Json::object();
  size_t bytes = 0;
  for (size_t i = 0; i < log.lines.size(); ++i) {
    const std::string& line = log.lines[i];
    bytes += line.size() + 1;
    if (static_cast<int64_t>(i) < head.seq) continue;  // known; verify compares them
    const Json json = is_sound(line) ? parse_json(line, path) : Json();
    if (json.is_null() || json.value("seq", int64_t{0}) != head.seq + 1 ||
        json.value("previous", std::string()) != head.hash) {
      return 0;  // no continuation: for export and verify to judge
    }
    head = {head.seq + 1, std::string(halves_of(line).hash)};
    database.run("INSERT INTO audit VALUES (?, ?, ?)", head.seq, line, head.hash);
    const std::string on = json.value("on", std::string());
    if (!replay_line(database, json)) {
      const std::string what = json.value("what", std::string());
      not_repeated[what] = not_repeated.value(what, int64_t{0}) + 1;
    }
    if (starts_with(on, "job ")) last_job = std::max(last_job, int64_t{std::atoll(on.c_str() + 4)});
    ++adopted;
  }
  if (adopted == 0) return 0;
  database.run("UPDATE audit_head SET seq = ?, hash = ?, exported = ?, exported_bytes = ?",
               head.seq, head.hash, head.seq, static_cast<int64_t>(bytes));
  reserve_ids(database, "jobs", last_job);
  Json detail = {{"lines", adopted}, {"last_job", last_job}};
  if (!not_repeated.empty()) detail["not_repeated"] = not_repeated;
  append_audit(database, {now_ms, kController, kAdoptAuditLog, "place", true, std::move(detail)});
  transaction.commit();
  return adopted;
}

AuditVerdict verify_audit(Database& database, FileSystem& files, const std::string& path,
                          const std::optional<AuditHead>& kept) {
  AuditVerdict verdict;
  // One state of the database for all questions.
  Transaction transaction(database);
  verdict.head = audit_head(database);
  std::vector<std::string> known;
  {
    ChainWalk walk(verdict);
    Query lines = database.query("SELECT seq, line, hash FROM audit ORDER BY seq");
    std::string last_hash;
    while (lines.next()) {
      const std::string where = fmt::format("database, line {}", lines.integer(0));
      known.push_back(lines.text(1));
      walk.take(known.back(), where);
      last_hash = lines.text(2);
      if (halves_of(known.back()).hash != last_hash) walk.note(where, "its hash was changed");
    }
    if (walk.next() - 1 != verdict.head.seq || last_hash != verdict.head.hash) {
      walk.note("database", fmt::format("the chain ends at line {}, its head is line {}",
                                        walk.next() - 1, verdict.head.seq));
    }
  }
  ChainWalk walk(verdict);
  const AuditFile log = read_audit_file(files, path);
  verdict.lines_in_file = static_cast<int64_t>(log.lines.size());
  for (size_t i = 0; i < log.lines.size(); ++i) {
    const std::string where = fmt::format("{}:{}", path, i + 1);
    const size_t before = verdict.findings.size();
    walk.take(log.lines[i], where);
    // A chain that was forged as a whole is consistent, but not the database's.
    if (before == verdict.findings.size() && (i >= known.size() || known[i] != log.lines[i])) {
      walk.note(where, "is not the line of that number in the database");
    }
  }
  Query exported = database.query("SELECT exported FROM audit_head");
  exported.next();
  if (verdict.lines_in_file < exported.integer(0)) {
    walk.note(path, fmt::format("ends after {} lines, and {} were written to it",
                                verdict.lines_in_file, exported.integer(0)));
  }
  if (!log.rest.empty()) {
    const size_t next = log.lines.size();
    if (next >= known.size() || !starts_with(known[next], log.rest)) {
      walk.note(path, "ends with bytes that are not part of the audit log");
    }
  }
  if (kept) {
    const bool there = kept->seq >= 1 && kept->seq <= static_cast<int64_t>(known.size()) &&
                       halves_of(known[static_cast<size_t>(kept->seq - 1)]).hash == kept->hash;
    if (!there) {
      walk.note("database", fmt::format("line {} with hash {} is not in the chain any more",
                                        kept->seq, kept->hash));
    }
  }
  return verdict;
}

namespace {

// "job 1" is named by "job 1", and not by "job 10".
bool names(const std::string& text, const std::string& words) {
  for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) {
    const size_t end = at + words.size();
    if ((at == 0 || text[at - 1] == ' ') && (end == text.size() || text[end] == ' ')) return true;
  }
  return false;
}

}  // namespace

std::vector<Json> audit_lines(Database& database, int64_t most, const std::string& matching) {
  std::vector<Json> lines;
  Query query = database.query("SELECT line FROM audit ORDER BY seq DESC");
  while (static_cast<int64_t>(lines.size()) < most && query.next()) {
    Json line = parse_json(query.text(0), database.path());
    const auto has = [&](const char* key) {
      return names(line.value(key, std::string()), matching);
    };
    if (matching.empty() || has("on") || has("who") || has("what")) {
      lines.push_back(std::move(line));
    }
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace tutti::control
