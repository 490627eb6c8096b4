#include "tutti/cli/program/output_lock.h"

#include "tutti/base/error.h"
#include "tutti/base/object_store.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/prepare/sources.h"

namespace tutti::cli {

OutputLock::OutputLock(FileSystem& files, const std::string& prefix)
    : files_(files), path_(data::corpus_paths(prefix).bin + data::kLockSuffix) {
  if (object_store(files, prefix) != nullptr) return;
  files_.create_directories(parent_path(path_));
  do {
    lock_.emplace(path_);
    if (!lock_->held()) {
      fail(ErrorKind::usage,
           "--out: '{}' is being prepared by another process; wait for it, or give another name",
           prefix);
    }
  } while (!files_.exists(path_));  // its last holder has just removed it
}

OutputLock::~OutputLock() {
  if (!lock_) return;
  try {
    files_.remove_file(path_);
  } catch (const Error&) {
    // It stays, as after a crash.
  }
}

}  // namespace tutti::cli
