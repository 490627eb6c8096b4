#include "tutti/node/disk_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/page_cache.h"
#include "tutti/node/storage_probe.h"

namespace tutti::node {
namespace {

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

double rate(int64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds; }

}  // namespace

DiskProbe probe_disk(FileSystem& files, const std::string& folder,
                     const DiskProbeOptions& options) {
  if (!files.is_directory(folder)) {
    fail(ErrorKind::not_found, "{}: no folder; name one on the disk to be checked", folder);
  }
  const TemporaryFile file(files, folder);
  DiskProbe out;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    out.write_bytes_per_second.push_back(
        rate(options.bytes, write_whole(files, file.path(), options.bytes, {})));
    out.read_from_disk = drop_cached_file(file.path()) && out.read_from_disk;
    out.read_bytes_per_second.push_back(rate(options.bytes, read_whole(files, file.path(), {})));
  }
  const auto journal = files.create(file.path());
  for (int sync = 0; sync < options.syncs; ++sync) {
    const double begin = monotonic_seconds();
    journal->append(incompressible_chunk().data(), kSyncBytes);
    journal->sync();
    out.sync_seconds.push_back(monotonic_seconds() - begin);
  }
  journal->close();
  return out;
}

}  // namespace tutti::node
