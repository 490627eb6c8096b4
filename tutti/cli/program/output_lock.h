// One process at a time makes the corpus of a name: two would write the same temporary files, and
// the corpus would hold tokens of both. In an object store there are no temporary files and no
// locks: of two processes the last one's objects stay, and a mixture is damage that its checksums
// show.
#pragma once

#include <optional>
#include <string>

#include "tutti/base/child_process.h"
#include "tutti/base/file.h"

namespace tutti::cli {

// Held for as long as it lives, by a file beside PREFIX.bin that goes with it; a process that is
// killed leaves the file, which does no harm. Nothing is held of a PREFIX in an object store.
// Throws usage where another process has it.
class OutputLock {
 public:
  OutputLock(FileSystem& files, const std::string& prefix);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  FileSystem& files_;
  const std::string path_;
  std::optional<ProcessLock> lock_;
};

}  // namespace tutti::cli
