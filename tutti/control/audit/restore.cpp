#include "tutti/control/audit/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/launches/lock_holders.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/store/schema.h"

namespace tutti::control {
namespace {

constexpr const char* kParts[] = {"", "-wal", "-shm"};

void check_unused(const std::string& path) {
  const std::vector<LockHolder> holders = lock_holders(path);
  if (holders.empty()) return;
  std::vector<std::string> who;
  who.reserve(holders.size());
  for (const LockHolder& holder : holders) who.push_back(describe(holder));
  fail(ErrorKind::usage, "'{}' is in use by {}; stop it first", path, join(who, ", "));
}

std::unique_ptr<Database> open_whole(const std::string& copy, const std::string& backup) {
  std::unique_ptr<Database> database;
  try {
    database = std::make_unique<Database>(copy);
    prepare_schema(*database);
    database->check_integrity();
    verify_ledger(*database);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    fail(ErrorKind::corrupt, "'{}' is not an intact backup ({}); try an older one", backup,
         error.what());
  }
  if (all_users(*database).empty()) {
    fail(ErrorKind::corrupt, "'{}' has no users: it is not a backup of a control plane", backup);
  }
  return database;
}

// That the file of the audit log is this backup's, line by line as far as both go, and has all that
// was in it at the time. Where it is missing it is rewritten.
void check_audit_log(Database& database, FileSystem& files, const std::string& path,
                     const std::string& backup) {
  if (!files.exists(path)) return;
  const std::string text = read_file(files, path);
  Query lines = database.query("SELECT seq, line FROM audit ORDER BY seq");
  size_t at = 0;
  for (size_t end = 0; lines.next() && (end = text.find('\n', at)) != std::string::npos;
       at = end + 1) {
    if (text.compare(at, end - at, lines.text(1)) == 0) continue;
    fail(ErrorKind::corrupt,
         "'{}' is a backup of another site than '{}', or from before this one was restored: "
         "they part at line {}; restore another one",
         backup, path, lines.integer(0));
  }
  Query exported = database.query("SELECT exported_bytes FROM audit_head");
  if (exported.next() && static_cast<int64_t>(text.size()) < exported.integer(0)) {
    fail(ErrorKind::corrupt,
         "'{}' was cut off: {} bytes were written to it, and {} are there; keep it elsewhere and "
         "move it away: it is then rewritten from the backup",
         path, exported.integer(0), text.size());
  }
}

// The highest number of an incident that has its file; 0: there is none.
int64_t last_incident_file(FileSystem& files, const std::string& folder) {
  int64_t last = 0;
  if (!files.is_directory(folder)) return last;
  for (const DirectoryEntry& entry : files.list(folder)) {
    int64_t number = 0;
    std::from_chars(entry.name.data(), entry.name.data() + entry.name.size(), number);
    last = std::max(last, number);
  }
  return last;
}

}  // namespace

Restored restore(FileSystem& files, const ControlFolder& folder, const std::string& backup,
                 int64_t now_ms, const std::function<void(Database&)>& allowed) {
  const std::string records = folder.database();
  if (!files.exists(backup)) fail(ErrorKind::not_found, "'{}' is not there", backup);
  check_unused(records);
  // On a copy: opening a database writes to it.
  const std::string copy = records + ".restoring";
  write_file_atomic(files, copy, read_file(files, backup));
  Restored restored;
  try {
    const auto database = open_whole(copy, backup);
    check_audit_log(*database, files, folder.audit(), backup);
    allowed(*database);
  } catch (...) {
    for (const char* part : kParts) {
      if (files.exists(copy + part)) files.remove_file(copy + part);
    }
    throw;
  }
  const std::string aside =
      fmt::format("{}.before-{}", records, format_utc_compact(static_cast<double>(now_ms) / 1000));
  for (const char* part : kParts) {
    if (!files.exists(records + part)) continue;
    files.rename(records + part, aside + part);
    restored.kept = aside;
  }
  files.rename(copy, records);
  files.sync_directory(folder.path);
  int64_t head_before = 0;
  {
    Database database(records);
    head_before = audit_head(database).seq;
    // Files of incidents since stay: the next ones need others.
    reserve_ids(database, "incidents", last_incident_file(files, folder.incidents()));
    restored.log_rewritten = !files.exists(folder.audit());
    if (restored.log_rewritten) {
      database.run("UPDATE audit_head SET exported = 0, exported_bytes = 0");
    }
  }
  restored.database = open_control(files, folder);
  const AuditHead head = audit_head(*restored.database);
  restored.not_repeated = Json::object();
  if (head.seq > head_before) {
    restored.lines = head.seq - head_before - 1;  // one records the others
    const Json line = audit_lines(*restored.database, 1, kAdoptAuditLog).front();
    restored.not_repeated = line["detail"].value("not_repeated", Json::object());
  }
  return restored;
}

}  // namespace tutti::control
