#include "tutti/control/store/folder.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/store/schema.h"

namespace tutti::control {

void make_private(FileSystem& files, const ControlFolder& folder) {
  struct stat status {};
  if (::stat(folder.path.c_str(), &status) == 0 && ::geteuid() != 0 &&
      status.st_uid != ::geteuid()) {
    const passwd* entry = ::getpwuid(status.st_uid);  // NOLINT(concurrency-mt-unsafe)
    fail(ErrorKind::permission,
         "'{}' is the control plane of {}, who alone may open it; ask for the address of its page "
         "(tutti "
         "serve), or name one of your own with --control",
         folder.path, entry == nullptr ? fmt::format("uid {}", status.st_uid) : entry->pw_name);
  }
  files.create_directories(folder.path);
  // No other account may read token hashes and jobs, wherever the folder came from.
  if (::chmod(folder.path.c_str(), 0700) != 0) {
    fail(ErrorKind::io, "'{}' cannot be made readable by its owner alone: {}", folder.path,
         std::strerror(errno));
  }
}

std::unique_ptr<Database> open_control(FileSystem& files, const ControlFolder& folder) {
  const bool is_there = files.exists(folder.database());
  if (!is_there || files.size_bytes(folder.database()) == 0) {
    if (files.exists(folder.audit()) && files.size_bytes(folder.audit()) > 0) {
      fail(ErrorKind::corrupt,
           "'{}' is {}, and '{}' records its contents; restore a backup: `tutti "
           "controller restore FILE`, or move the folder away to start empty",
           folder.database(), is_there ? "empty" : "missing", folder.audit());
    }
  }
  if (!is_there) make_private(files, folder);
  for (const std::string& path : {folder.jobs(), folder.recipes()}) files.create_directories(path);
  auto database = std::make_unique<Database>(folder.database());
  prepare_schema(*database);
  adopt_audit_log(*database, files, folder.audit(), wall_milliseconds());
  return database;
}

}  // namespace tutti::control
