#include "tutti/control/store/database.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/control/launches/lock_holders.h"

namespace tutti::control {
namespace {

constexpr double kDatabaseLookSeconds = 0.02;

}  // namespace

Query::Query(Database* database, sqlite3_stmt* statement, bool* in_use)
    : database_(database), statement_(statement), in_use_(in_use) {}

Query::Query(Query&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      in_use_(other.in_use_) {}

Query::~Query() {
  if (statement_ == nullptr) return;
  if (in_use_ == nullptr) {
    sqlite3_finalize(statement_);
    return;
  }
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  *in_use_ = false;
}

bool Query::next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_->fail_with(code, sqlite3_sql(statement_));
  return false;
}

std::string Query::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

std::optional<int64_t> Query::maybe_integer(int column) const {
  if (is_null(column)) return std::nullopt;
  return integer(column);
}

void Query::bind(int at, int64_t value) { sqlite3_bind_int64(statement_, at, value); }

void Query::bind(int at, std::string_view value) {
  sqlite3_bind_text(statement_, at, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
}

void Query::bind(int at, const std::optional<int64_t>& value) {
  if (value) {
    bind(at, *value);
  } else {
    sqlite3_bind_null(statement_, at);
  }
}

Database::Database(const std::string& path, double patience_seconds)
    : path_(path), patience_seconds_(patience_seconds) {
  // Of one thread: a lock around every column that is read would cost more than reading it.
  const int code =
      sqlite3_open_v2(path.c_str(), &connection_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) {
    const std::string why = sqlite3_errstr(code);
    sqlite3_close(connection_);
    fail(ErrorKind::permission, "'{}' cannot be opened: {}", path, why);
  }
  sqlite3_extended_result_codes(connection_, 1);
  sqlite3_busy_timeout(connection_, static_cast<int>(patience_seconds * 1000));
  try {
    // FULL: a committed transition survives the loss of power.
    keep_log();
    execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;");
  } catch (...) {
    sqlite3_close(connection_);
    throw;
  }
}

Database::~Database() {
  for (const auto& [sql, prepared] : prepared_) sqlite3_finalize(prepared.statement);
  sqlite3_close(connection_);
}

namespace {

constexpr const char* kDamaged =
    "'{}' is damaged ({}); stop the controller and restore a backup: `tutti controller "
    "restore FILE`";
constexpr const char* kNoSpace = "'{}': no space left to write; free some and try again";

// Whom to ask about a lock: those that keep others from writing to the records.
std::string who_locks(const std::string& path) {
  std::string who;
  for (const std::string& file : {path + "-shm", path}) {
    for (const LockHolder& holder : lock_holders(file)) {
      if (holder.writes) who += (who.empty() ? " by " : ", ") + describe(holder);
    }
  }
  return who.empty() ? " by another process" : who;
}

}  // namespace

void Database::fail_with(int code, const char* doing) const {
  const std::string detail = sqlite3_errmsg(connection_);
  const int system = sqlite3_system_errno(connection_);
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      fail(ErrorKind::io, "'{}' was locked{} for {} s; retry after it has ended", path_,
           who_locks(path_), patience_seconds_);
    case SQLITE_FULL: fail(ErrorKind::no_space, kNoSpace, path_);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: fail(ErrorKind::corrupt, kDamaged, path_, detail);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_CANTOPEN: fail(ErrorKind::permission, "'{}': {}", path_, detail);
    case SQLITE_IOERR:
      if (system == ENOSPC || system == EDQUOT) fail(ErrorKind::no_space, kNoSpace, path_);
      fail(ErrorKind::io, "'{}': {}{}", path_, detail,
           system == 0 ? std::string() : fmt::format(" ({})", std::strerror(system)));
    default: break;
  }
  // What is left are mistakes in statements and violated constraints: this program's own.
  TUTTI_CHECK(false, "{}: {} ({}) in: {}", path_, detail, code, doing);
  std::abort();
}

void Database::keep_log() {
  constexpr const char* kStatement = "PRAGMA journal_mode = WAL";
  const double until = monotonic_seconds() + patience_seconds_;
  while (true) {
    const int code = sqlite3_exec(connection_, kStatement, nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) return;
    if ((code & 0xFF) != SQLITE_BUSY || monotonic_seconds() >= until) fail_with(code, kStatement);
    sleep_seconds(kDatabaseLookSeconds);
  }
}

void Database::execute(const char* sql) {
  const int code = sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail_with(code, sql);
}

Query Database::prepare(const char* sql) {
  Prepared& prepared = prepared_[sql];
  const auto compile = [&] {
    sqlite3_stmt* statement = nullptr;
    const int code =
        sqlite3_prepare_v3(connection_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) fail_with(code, sql);
    return statement;
  };
  // The same statement in the middle of itself.
  if (prepared.in_use) return Query(this, compile(), nullptr);
  if (prepared.statement == nullptr) prepared.statement = compile();
  prepared.in_use = true;
  return Query(this, prepared.statement, &prepared.in_use);
}

void Database::check_integrity() {
  Query query = this->query("PRAGMA integrity_check(1)");
  if (!query.next() || query.text(0) != "ok") {
    fail(ErrorKind::corrupt, kDamaged, path_, query.text(0));
  }
}

void Database::copy_to(const std::string& path) {
  if (const std::string folder = parent_path(path); !posix_file_system().is_directory(folder)) {
    fail(ErrorKind::not_found, "'{}': no folder '{}' to write it to", path, folder);
  }
  const std::string temporary = path + ".tmp";
  std::remove(temporary.c_str());
  run("VACUUM INTO ?", temporary);
  FileSystem& files = posix_file_system();
  files.open_append(temporary)->sync();
  files.rename(temporary, path);
  files.sync_directory(parent_path(path));
}

Transaction::Transaction(Database& database) : database_(database) {
  TUTTI_CHECK(!database.in_transaction(), "{}: a transaction inside a transaction",
              database.path());
  // One that reads an older state could never write: locked, however long one waits.
  for (sqlite3_stmt* each = nullptr;
       (each = sqlite3_next_stmt(database.connection_, each)) != nullptr;) {
    TUTTI_CHECK(sqlite3_stmt_busy(each) == 0, "{}: a transaction while this is being read: {}",
                database.path(), sqlite3_sql(each));
  }
  database.run("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  // SQLite may have rolled back by itself, such as when the disk was full.
  if (open_ && database_.in_transaction()) {
    sqlite3_exec(database_.connection_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

void Transaction::commit() {
  if (database_.commit_probe) database_.commit_probe(Database::CommitPhase::before);
  database_.run("COMMIT");
  open_ = false;
  if (database_.commit_probe) database_.commit_probe(Database::CommitPhase::after);
}

}  // namespace tutti::control
