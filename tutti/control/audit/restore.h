// Restores the database from a backup.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/control/store/database.h"
#include "tutti/control/store/folder.h"

namespace tutti::control {

struct Restored {
  std::unique_ptr<Database> database;
  std::string kept;            // where the former records are now; empty: there were none
  int64_t lines = 0;           // of the audit log file that the backup did not have
  bool log_rewritten = false;  // its file was gone; what came after the backup is not known
  Json not_repeated;           // what they record and could not be replayed: {"issue token": 2}
};

// The caller holds the lock of the controller. Reads `backup`, which stays as it is, checks that it
// is whole, asks `allowed` (which throws) with it, moves the former records aside and opens it in
// their place, and replays newer entries of the audit log (audit.h). Throws usage while others have
// the records open, corrupt where the backup is not whole, where the audit log differs from the one
// at the time of the backup, or was truncated.
Restored restore(FileSystem& files, const ControlFolder& folder, const std::string& backup,
                 int64_t now_ms, const std::function<void(Database&)>& allowed);

}  // namespace tutti::control
