// A folder of results that appears under its name complete or not at all.
//
//   NewFolder out(files, "tuned");
//   write_file_atomic(files, join_path(out.partial(), "config.json"), text); ...
//   out.commit();
//
// It is made as PATH.partial beside its final name, synced and renamed by commit(). Without
// commit() the destructor removes it; what a process that was killed left there, the next one that
// makes the same folder removes.
#pragma once

#include <string>

#include "tutti/base/file.h"

namespace tutti {

class NewFolder {
 public:
  // Throws usage when `path` is there already and is not an empty folder. Slashes at its end do not
  // count.
  NewFolder(FileSystem& files, std::string path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& partial() const { return partial_; }  // write here; files synced
  const std::string& path() const { return path_; }

  // Makes the names in partial() durable and renames it to path(). Names in folders below it are
  // the writer's to sync.
  void commit();

 private:
  FileSystem& files_;
  std::string path_;
  std::string partial_;  // empty after commit()
};

}  // namespace tutti
