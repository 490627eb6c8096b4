#include "tutti/node/disk_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/page_cache.h"
#include "tutti/base/rng.h"

namespace tutti::node {
namespace {

constexpr int64_t kChunkBytes = 4 << 20;
constexpr size_t kSyncBytes = 4096;

class TemporaryFile {
 public:
  TemporaryFile(FileSystem& files, const std::string& folder)
      : files_(files), path_(join_path(folder, fmt::format(".tutti-check-{}", ::getpid()))) {}
  ~TemporaryFile() {
    try {
      if (files_.exists(path_)) files_.remove_file(path_);
    } catch (const Error&) {
      // The folder is as broken as the probe says; there is nothing else to do about it.
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  FileSystem& files_;
  std::string path_;
};

// Not compressible, so that a file system that compresses gains nothing.
std::vector<uint32_t> random_chunk() {
  std::vector<uint32_t> chunk(kChunkBytes / sizeof(uint32_t));
  for (size_t i = 0; i < chunk.size(); i += 4) {
    const auto four = philox(5, i);
    std::copy(four.begin(), four.end(), chunk.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return chunk;
}

double write_once(FileSystem& files, const std::string& path, int64_t bytes,
                  const std::vector<uint32_t>& chunk) {
  const double begin = monotonic_seconds();
  const auto file = files.create(path);
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    file->append(chunk.data(), static_cast<size_t>(std::min(kChunkBytes, bytes - at)));
  }
  file->sync();
  file->close();
  return static_cast<double>(bytes) / (monotonic_seconds() - begin);
}

double read_once(FileSystem& files, const std::string& path) {
  std::vector<char> buffer(kChunkBytes);
  const double begin = monotonic_seconds();
  const auto file = files.map(path);
  const std::string_view bytes = file->bytes();
  file->will_need(0, bytes.size());
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    const size_t count = std::min<size_t>(kChunkBytes, bytes.size() - at);
    std::memcpy(buffer.data(), bytes.data() + at, count);
  }
  return static_cast<double>(bytes.size()) / (monotonic_seconds() - begin);
}

}  // namespace

DiskProbe probe_disk(FileSystem& files, const std::string& folder,
                     const DiskProbeOptions& options) {
  if (!files.is_directory(folder)) {
    fail(ErrorKind::not_found, "{}: no folder; name one on the disk to be checked", folder);
  }
  const TemporaryFile file(files, folder);
  const std::vector<uint32_t> chunk = random_chunk();
  DiskProbe out;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    out.write_bytes_per_second.push_back(write_once(files, file.path(), options.bytes, chunk));
    out.read_from_disk = drop_cached_file(file.path()) && out.read_from_disk;
    out.read_bytes_per_second.push_back(read_once(files, file.path()));
  }
  const auto journal = files.create(file.path());
  for (int sync = 0; sync < options.syncs; ++sync) {
    const double begin = monotonic_seconds();
    journal->append(chunk.data(), kSyncBytes);
    journal->sync();
    out.sync_seconds.push_back(monotonic_seconds() - begin);
  }
  journal->close();
  return out;
}

}  // namespace tutti::node
