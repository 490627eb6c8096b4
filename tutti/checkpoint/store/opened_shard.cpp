#include "tutti/checkpoint/store/opened_shard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tutti/base/error.h"

namespace tutti::checkpoint {

OpenedShard::OpenedShard(const SealKey& key, const FileRecord& file, int64_t piece_bytes)
    : seal_(key, file.salt),
      piece_bytes_(piece_bytes),
      size_(static_cast<size_t>(file.content_bytes)) {
  void* data = ::mmap(nullptr, std::max<size_t>(size_, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    fail(ErrorKind::io, "no {} bytes of memory for {}: {}", size_, file.name, std::strerror(errno));
  }
  data_ = static_cast<char*>(data);
}

OpenedShard::~OpenedShard() { ::munmap(data_, std::max<size_t>(size_, 1)); }

bool OpenedShard::open(int64_t chunk, std::string_view stored) {
  return seal_.open(chunk, stored, data_ + chunk * piece_bytes_);
}

void OpenedShard::forget(int64_t begin, int64_t end) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (begin < end) ::madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace tutti::checkpoint
