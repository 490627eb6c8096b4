// The audit log: who did what, when, on what, allowed or denied. A line is written in the
// transaction of the change that it records, so there is no change without its line and no line
// without its change. Lines form a chain: each holds the SHA-256 of the one before, and ends with
// its own.
//
//   {"seq":7,"time":"2026-01-31T12:00:00Z","who":"ada","what":"cancel","on":"job 3",
//    "allowed":true,"detail":{...},"previous":"5f..","hash":"a1.."}        (one line)
//
// hash is that of the line's text before `,"hash"`. The lines are kept twice: in the database, with
// the head of the chain, and in a file that is only ever appended to (FOLDER/audit.jsonl). The
// database knows how many lines it has seen durable in the file, so that a cut at its end shows.
// Write access to both allows forging both: `verify` prints the head, to be kept elsewhere, and
// checks one that was kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// The controller's own actions are logged under this name, which no user may have.
inline constexpr const char* kController = "controller";

struct AuditLine {
  int64_t time_ms = 0;
  std::string who;   // a user, or kController
  std::string what;  // the action, or STATE -> STATE
  std::string on;    // "job 3", "project vision"
  bool allowed = true;
  Json detail = Json::object();
  std::string client = {};  // address that the request came from over the network; empty: none
};

// Within a transaction. Returns the line's number, from 1.
int64_t append_audit(Database& database, const AuditLine& line);

// Appends to the file what it does not have yet; durable on return. What a crash left of an earlier
// attempt is completed. Throws corrupt, and appends nothing, where the file ends before lines that
// were durable in it.
void export_audit(Database& database, FileSystem& files, const std::string& path);

// For a database that was restored from a backup: takes over the lines that its file has beyond its
// own and that continue its chain, makes the changes that they record (replay.h), and never gives
// out the numbers of their jobs again. Returns how many. To be called before anything is appended;
// adds a line kAdoptAuditLog, whose `not_repeated` counts by name what could not be made.
inline constexpr const char* kAdoptAuditLog = "adopt trail";
int64_t adopt_audit_log(Database& database, FileSystem& files, const std::string& path,
                        int64_t now_ms);

struct AuditHead {
  int64_t seq = 0;
  std::string hash;
};
AuditHead audit_head(Database& database);

struct AuditFinding {
  std::string where;  // "audit.jsonl:7", "database, line 7"
  std::string what;
};
struct AuditVerdict {
  AuditHead head;
  int64_t lines_in_file = 0;
  std::vector<AuditFinding> findings;  // the first twenty
  bool intact() const { return findings.empty(); }
};

// Reads everything; `kept` is a head noted earlier, which must still be in the chain.
AuditVerdict verify_audit(Database& database, FileSystem& files, const std::string& path,
                          const std::optional<AuditHead>& kept = std::nullopt);

// The newest lines, oldest first, at most `most`; whose `on`, `who` or `what` has `matching` as
// whole words, unless that is empty.
std::vector<Json> audit_lines(Database& database, int64_t most, const std::string& matching);

}  // namespace tutti::control
