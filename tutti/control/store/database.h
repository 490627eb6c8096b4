// SQLite as a resource: one connection, statements prepared once, transactions that roll back
// unless they are committed. Everything that goes wrong throws Error with the file's name: io where
// another process holds the lock for too long, no_space, corrupt, permission, not_found.
//
// A connection belongs to one thread. Several processes may have the same file open: writers take
// turns (BEGIN IMMEDIATE), readers see the last committed state (write-ahead log).
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tutti::control {

class Database;

// A running statement; gives the statement back when it goes out of scope.
class Query {
 public:
  Query(Query&& other) noexcept;
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  Query& operator=(Query&&) = delete;
  ~Query();

  bool next();  // the next row; false: there is none
  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) const;
  bool is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  std::optional<int64_t> maybe_integer(int column) const;

 private:
  friend class Database;
  Query(Database* database, sqlite3_stmt* statement, bool* in_use);
  void bind(int at, int64_t value);
  void bind(int at, int value) { bind(at, int64_t{value}); }
  void bind(int at, bool value) { bind(at, int64_t{value}); }
  void bind(int at, std::string_view value);
  void bind(int at, const std::string& value) { bind(at, std::string_view(value)); }
  void bind(int at, const char* value) { bind(at, std::string_view(value)); }
  void bind(int at, const std::optional<int64_t>& value);

  Database* database_;
  sqlite3_stmt* statement_;
  bool* in_use_;  // null: the statement is this query's own
};

class Database {
 public:
  // ":memory:" is a database of this connection alone. A file is created where it is not.
  // Waits up to `patience_seconds` for others' transactions.
  explicit Database(const std::string& path, double patience_seconds = 10);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void execute(const char* sql);  // one or several statements without results

  // `sql` must live as long as the connection: a literal.
  template <typename... Args>
  Query query(const char* sql, const Args&... args) {
    Query query = prepare(sql);
    int at = 0;
    (query.bind(++at, args), ...);
    return query;
  }
  // For statements that give no rows. Returns the number of rows changed.
  template <typename... Args>
  int64_t run(const char* sql, const Args&... args) {
    Query query = this->query(sql, args...);
    query.next();
    return sqlite3_changes64(connection_);
  }
  int64_t last_insert_id() const { return sqlite3_last_insert_rowid(connection_); }

  const std::string& path() const { return path_; }
  bool in_transaction() const { return sqlite3_get_autocommit(connection_) == 0; }

  // Throws corrupt with the first finding.
  void check_integrity();
  // A consistent copy, also while others write; replaced as a whole.
  void copy_to(const std::string& path);

  // Called right before and right after every commit: crash tests throw from it.
  enum class CommitPhase { before, after };
  std::function<void(CommitPhase)> commit_probe;

 private:
  friend class Query;
  friend class Transaction;
  struct Prepared {
    sqlite3_stmt* statement = nullptr;
    bool in_use = false;
  };
  Query prepare(const char* sql);
  // Commits go to a log beside the file, so that readers and a writer do not wait for each other.
  // For those who make the file at the same time SQLite does not wait by itself.
  void keep_log();
  [[noreturn]] void fail_with(int code, const char* doing) const;

  std::string path_;
  double patience_seconds_;
  sqlite3* connection_ = nullptr;
  std::unordered_map<const char*, Prepared> prepared_;
};

// A write transaction: takes the write lock at once, so what it reads stays true until its end.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();  // rolls back unless committed
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace tutti::control
