// How fast a folder's storage writes, reads and makes durable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::node {

struct DiskProbe {
  // Per repeat. Writing ends when the bytes are durable.
  std::vector<double> write_bytes_per_second;
  std::vector<double> read_bytes_per_second;
  bool read_from_disk = true;  // false: the system would not forget the file, so memory was read
  std::vector<double> sync_seconds;  // of 4 KiB appended and made durable, each
};

struct DiskProbeOptions {
  int64_t bytes = int64_t{64} << 20;
  int repeats = 3;
  int syncs = 100;
};

// Writes a file of its own in `folder`, which is gone afterwards however this ends. Throws what the
// file system throws: no_space, permission, io.
DiskProbe probe_disk(FileSystem& files, const std::string& folder, const DiskProbeOptions& options);

}  // namespace tutti::node
