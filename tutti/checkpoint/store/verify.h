// Finds any flipped bit or missing byte of a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/parallel.h"

namespace tutti::checkpoint {

struct Finding {
  std::string file;    // name inside the checkpoint's folder
  int64_t offset = 0;  // bytes from the start of the file at which the damaged part begins
  std::string what;
};

// Reads every byte of the manifest and of the files it names, and compares. Empty: intact. Files
// that the manifest does not name are ignored. `progress` gets bytes done and in all, from one
// thread. Throws not_found when `path` is not a folder, permission and io as they come.
std::vector<Finding> verify_checkpoint(
    FileSystem& files, const std::string& path,
    const std::function<void(int64_t done_bytes, int64_t total_bytes)>& progress = {},
    const ParallelFor& parallel = parallel_threads);

}  // namespace tutti::checkpoint
