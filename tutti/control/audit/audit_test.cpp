// The log: what was edited, dropped, reordered, cut off or forged is found; crashes harm nothing.

#include "tutti/control/audit/audit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tutti/base/testing/memory_file.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

constexpr const char* kPath = "audit.jsonl";

struct AuditFixture {
  SmallControlPlane plane;
  MemoryFileSystem files;
  AuditFixture() {
    submit(plane.as("ada"), SmallControlPlane::request(), false);
    submit(plane.as("bob"), SmallControlPlane::request("speech"), false);
    cancel(plane.as("ada"), 1);
    export_audit(plane.database, files, kPath);
  }
  std::vector<std::string> lines() {
    std::vector<std::string> lines;
    const std::string text = read_file(files, kPath);
    for (const auto line : split(text, '\n')) lines.emplace_back(line);
    lines.pop_back();
    return lines;
  }
  void write(const std::vector<std::string>& lines) {
    write_file_atomic(files, kPath, lines.empty() ? "" : join(lines, "\n") + "\n");
  }
  AuditVerdict verdict() { return verify_audit(plane.database, files, kPath); }
};

TEST(Audit, AnUnmodifiedLogIsIntact) {
  AuditFixture log;
  const AuditVerdict verdict = log.verdict();
  EXPECT_TRUE(verdict.intact());
  EXPECT_EQ(verdict.lines_in_file, verdict.head.seq);
  EXPECT_GT(verdict.head.seq, 10);
  const Json last = audit_lines(log.plane.database, 1, "").front();
  EXPECT_EQ(last["who"], "ada");
  EXPECT_EQ(last["what"], "PENDING -> CANCELLED");
  EXPECT_EQ(last["on"], "job 1");
  EXPECT_EQ(last["time"], "2026-01-31T12:00:00Z");
  EXPECT_EQ(audit_lines(log.plane.database, 100, "job 2").size(), 1U);
}

TEST(Audit, FiltersMatchWholeNames) {
  AuditFixture log;
  Database& database = log.plane.database;
  {
    Transaction transaction(database);
    note(log.plane.as("ad"), "submit", "job 20", true);
    transaction.commit();
  }
  EXPECT_EQ(audit_lines(database, 100, "job 2").size(), 1U);
  EXPECT_EQ(audit_lines(database, 100, "job 20").size(), 1U);
  EXPECT_EQ(audit_lines(database, 100, "ad").size(), 1U);
  EXPECT_EQ(audit_lines(database, 1, "CANCELLED").size(), 1U);
}

TEST(Audit, RequestsFromTheNetworkCarryTheirAddress) {
  SmallControlPlane plane;
  Caller ada = plane.as("ada");
  ada.client = "192.0.2.1";
  const int64_t id = submit(ada, SmallControlPlane::request(), false).job.id;
  cancel(ada, id);
  EXPECT_THROW(cancel(ada, 99), Error);
  for (const Json& line : audit_lines(plane.database, 3, "")) {
    EXPECT_EQ(line.value("client", ""), "192.0.2.1") << line.dump();
  }
  requeue(plane.as("ada"), id);
  EXPECT_FALSE(audit_lines(plane.database, 1, "").front().contains("client"));
}

TEST(Audit, EveryEditedByteIsFound) {
  AuditFixture log;
  const std::vector<std::string> lines = log.lines();
  const std::string& victim = lines[4];
  for (size_t at = 0; at < victim.size(); at += 3) {
    std::vector<std::string> edited = lines;
    edited[4][at] = edited[4][at] == 'x' ? 'y' : 'x';
    log.write(edited);
    const AuditVerdict verdict = log.verdict();
    ASSERT_FALSE(verdict.intact()) << at;
    EXPECT_EQ(verdict.findings.front().where, "audit.jsonl:5");
  }
}

TEST(Audit, EveryDroppedLineIsFound) {
  AuditFixture log;
  const std::vector<std::string> lines = log.lines();
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::string> dropped = lines;
    dropped.erase(dropped.begin() + static_cast<std::ptrdiff_t>(i));
    log.write(dropped);
    EXPECT_FALSE(log.verdict().intact()) << i;
  }
}

TEST(Audit, EveryPairOfSwappedLinesIsFound) {
  AuditFixture log;
  const std::vector<std::string> lines = log.lines();
  for (size_t i = 0; i < lines.size(); ++i) {
    for (size_t j = i + 1; j < lines.size(); ++j) {
      std::vector<std::string> swapped = lines;
      std::swap(swapped[i], swapped[j]);
      log.write(swapped);
      EXPECT_FALSE(log.verdict().intact()) << i << " " << j;
    }
  }
}

TEST(Audit, TruncationIsFoundAndNotOverwritten) {
  AuditFixture log;
  std::vector<std::string> lines = log.lines();
  lines.resize(lines.size() - 2);
  log.write(lines);
  EXPECT_FALSE(log.verdict().intact());
  submit(log.plane.as("ada"), SmallControlPlane::request(), false);
  EXPECT_TRUE(throws(
      ErrorKind::corrupt, [&] { export_audit(log.plane.database, log.files, kPath); }, "cut off"));
}

// Rewriting a line and all hashes after it makes a consistent chain: it is not the one in the
// database. If that is rewritten too, a head that was kept elsewhere shows it.
TEST(Audit, AForgedChainIsFound) {
  AuditFixture log;
  const AuditHead kept = audit_head(log.plane.database);
  std::vector<std::string> lines = log.lines();
  std::string previous = parse_json(lines[3], kPath)["hash"];
  for (size_t i = 4; i < lines.size(); ++i) {
    Json json = parse_json(lines[i], kPath);
    if (i == 4) json["who"] = "mallory";
    json["previous"] = previous;
    json.erase("hash");
    std::string body = dump_json(json);
    body.pop_back();
    previous = sha256_hex(body);
    lines[i] = fmt::format(R"({},"hash":"{}"}})", body, previous);
  }
  log.write(lines);
  EXPECT_FALSE(log.verdict().intact());
  Database& database = log.plane.database;
  for (size_t i = 4; i < lines.size(); ++i) {
    const std::string hash = parse_json(lines[i], kPath)["hash"];
    database.run("UPDATE audit SET line = ?, hash = ? WHERE seq = ?", lines[i], hash,
                 static_cast<int64_t>(i + 1));
    database.run("UPDATE audit_head SET hash = ?", hash);
  }
  EXPECT_TRUE(log.verdict().intact());
  EXPECT_FALSE(verify_audit(database, log.files, kPath, kept).intact());
}

// In file and database alike, with a hash that is its own: the next line does not continue it.
TEST(Audit, EditedLinesWithFreshHashesBreakTheChain) {
  AuditFixture log;
  std::vector<std::string> lines = log.lines();
  Json json = parse_json(lines[3], kPath);
  json["who"] = "mallory";
  json.erase("hash");
  std::string body = dump_json(json);
  body.pop_back();
  const std::string hash = sha256_hex(body);
  lines[3] = fmt::format(R"({},"hash":"{}"}})", body, hash);
  log.write(lines);
  log.plane.database.run("UPDATE audit SET line = ?, hash = ? WHERE seq = 4", lines[3], hash);
  EXPECT_FALSE(log.verdict().intact());
}

TEST(Audit, ChangesInTheDatabaseAreFound) {
  for (const char* sql :
       {"DELETE FROM audit WHERE seq = 3", "UPDATE audit SET line = 'x' WHERE seq = 3",
        "UPDATE audit_head SET seq = seq - 1",
        "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)",
        "UPDATE audit SET hash = 'x' WHERE seq = 3"}) {
    AuditFixture log;
    log.plane.database.run(sql);
    EXPECT_FALSE(log.verdict().intact()) << sql;
  }
}

// Power lost at any operation of an export: afterwards the log is whole again.
TEST(Audit, ACrashWhileExportingLosesNothing) {
  AuditFixture log;
  Database& database = log.plane.database;
  log.files.start_record();
  const AuditHead before = audit_head(database);
  const int64_t bytes_before = log.files.size_bytes(kPath);
  submit(log.plane.as("ada"), SmallControlPlane::request(), false);
  submit(log.plane.as("ada"), SmallControlPlane::request(), false);
  export_audit(database, log.files, kPath);
  int64_t torn = 0;
  for (int64_t operations = 0; operations <= log.files.operation_count(); ++operations) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto files = log.files.crash_after(operations, seed);
      torn += read_file(*files, kPath).find('\0') != std::string::npos ? 1 : 0;
      // The transaction of the export did not commit.
      database.run("UPDATE audit_head SET exported = ?, exported_bytes = ?", before.seq,
                   bytes_before);
      export_audit(database, *files, kPath);
      EXPECT_TRUE(verify_audit(database, *files, kPath).intact()) << operations << " " << seed;
    }
  }
  EXPECT_GT(torn, 0);
}

// A backup replaces the database: the log file has newer entries, which are replayed.
TEST(Audit, RestoredDatabasesAdoptNewerLogEntries) {
  const std::string path =
      testing::TempDir() + "/tutti_audit_restore_" + std::to_string(::getpid()) + ".db";
  MemoryFileSystem files;
  SmallControlPlane plane;
  submit(plane.as("ada"), SmallControlPlane::request(), false);
  export_audit(plane.database, files, kPath);
  plane.database.copy_to(path);
  submit(plane.as("ada"), SmallControlPlane::request(), false);
  submit(plane.as("ada"), SmallControlPlane::request(), false);
  export_audit(plane.database, files, kPath);
  const AuditHead head = audit_head(plane.database);
  EXPECT_EQ(adopt_audit_log(plane.database, files, kPath, kNoon), 0);

  Database restored(path);
  EXPECT_FALSE(verify_audit(restored, files, kPath).intact());
  EXPECT_EQ(adopt_audit_log(restored, files, kPath, kNoon), 2);
  EXPECT_EQ(audit_head(restored).seq, head.seq + 1);
  EXPECT_EQ(adopt_audit_log(restored, files, kPath, kNoon), 0);
  // Numbers that were given out are not given out again.
  EXPECT_EQ(submit({restored, "ada", kNoon}, SmallControlPlane::request(), false).job.id, 4);
  export_audit(restored, files, kPath);
  EXPECT_TRUE(verify_audit(restored, files, kPath, head).intact());
}

TEST(Digest, IsSha256) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_NE(random_hex(16), random_hex(16));
  EXPECT_TRUE(same_text("ab", "ab"));
  EXPECT_FALSE(same_text("ab", "ac"));
}

}  // namespace
}  // namespace tutti::control
