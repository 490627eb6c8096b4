// Where a measurement of a storage writes: a folder of its own, which is gone afterwards.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/file.h"

namespace tutti::train {

class BenchFolder {
 public:
  // Makes a folder in `parent` that was not there, with the name of this host and process.
  BenchFolder(FileSystem& files, const std::string& parent);
  ~BenchFolder();  // removes it, as far as that is possible
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;

  std::string file(const std::string& name) const { return join_path(path_, name); }
  void remove();  // throws what the file system throws

 private:
  FileSystem& files_;
  std::string path_;  // empty: removed
};

// Throws not_found where the folder `path` does not exist, and no_space where less than 5% of its
// disk would be left beside `bytes`. `on_machine` false: of files that are not the machine's, only
// the first.
void check_bench_space(FileSystem& files, const std::string& path, int64_t bytes, bool on_machine);

}  // namespace tutti::train
