// A file of the machine that is read and written around the page cache, for measurements of what a
// disk does. Not part of FileSystem, since it changes nothing that a file holds.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/object_store.h"

namespace tutti {

// Offsets, sizes and addresses of direct requests are multiples of this, whatever the disk's block.
inline constexpr int64_t kDirectBytes = 4096;

struct FreeAligned {
  void operator()(char* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<char, FreeAligned>;
AlignedBytes make_aligned_bytes(int64_t bytes);  // rounded up to kDirectBytes

// Where the bytes come from that a read returns.
enum class ReadSource {
  device,   // O_DIRECT: no cache of this machine
  dropped,  // the file was dropped from the page cache before; the system may read ahead
  memory    // it is in memory, and the system does not drop it (tmpfs)
};
const char* read_source_text(ReadSource source);

class DirectFile final : public RangedFile {
 public:
  enum class Use { read, overwrite };
  // Syncs the file and drops it from the page cache. Throws not_found, permission and io.
  DirectFile(const std::string& path, Use use);
  ~DirectFile() override;
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  int64_t size_bytes() const override { return size_bytes_; }
  void read(int64_t offset, int64_t size, void* out) const override;
  // Overwrites bytes that are there.
  void write(int64_t offset, int64_t size, const void* data) const;
  void sync() const;  // returns when the bytes are durable
  ReadSource source() const { return source_; }
  bool is_direct() const { return source_ == ReadSource::device; }

 private:
  const std::string path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
  ReadSource source_ = ReadSource::device;
};

// Of the file system that holds `path`; nullopt: the machine has no such path.
struct DiskSpace {
  double total_bytes = 0;
  double free_bytes = 0;  // for users without privileges
};
std::optional<DiskSpace> disk_space(const std::string& path);

}  // namespace tutti
