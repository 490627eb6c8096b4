#include "tutti/engine/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::engine {

Arena::Arena(std::string name, int64_t bytes, ArenaKind kind)
    : name_(std::move(name)), bytes_(bytes) {
  TUTTI_CHECK(bytes >= 0, "arena {}: {} bytes", name_, bytes);
  if (bytes == 0) return;
  if (kind == ArenaKind::shared) {
    file_descriptor_ = memfd_create(name_.c_str(), MFD_CLOEXEC);
    if (file_descriptor_ < 0 || ftruncate(file_descriptor_, bytes) != 0) {
      const int error = errno;
      if (file_descriptor_ >= 0) close(file_descriptor_);
      fail(ErrorKind::unsupported, "arena {}: the system does not grant {} bytes to share ({})",
           name_, bytes, std::strerror(error));
    }
  }
  // Fresh anonymous pages are zero and page-aligned; they are populated at once, so that no page
  // fault falls into a step and a machine with too little memory fails here.
  const bool shared = file_descriptor_ >= 0;
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file_descriptor_, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    if (shared) close(file_descriptor_);
    fail(
        ErrorKind::unsupported,
        "arena {}: the system does not grant {} bytes of memory ({}); choose a smaller micro-batch "
        "or model",
        name_, bytes, std::strerror(error));
  }
  data_ = data;
  madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);        // both are hints: older
  madvise(data_, static_cast<size_t>(bytes), MADV_POPULATE_WRITE);  // kernels lack them
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  if (file_descriptor_ >= 0) close(file_descriptor_);
}

Arena::Arena(Arena&& other) noexcept
    : name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      file_descriptor_(std::exchange(other.file_descriptor_, -1)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  std::swap(file_descriptor_, other.file_descriptor_);
  return *this;
}

void* Arena::at(int64_t offset, int64_t bytes) const {
  TUTTI_CHECK(offset >= 0 && bytes >= 0 && offset <= bytes_ && bytes <= bytes_ - offset,
              "arena {} of {} bytes: range {}+{}", name_, bytes_, offset, bytes);
  TUTTI_CHECK(offset % kArenaAlignment == 0, "arena {}: offset {} is not a multiple of {}", name_,
              offset, kArenaAlignment);
  return static_cast<char*>(data_) + offset;
}

void Arena::poison(int64_t offset, int64_t bytes) const {
  TUTTI_CHECK(offset >= 0 && bytes >= 0 && offset <= bytes_ && bytes <= bytes_ - offset,
              "arena {} of {} bytes: poison {}+{}", name_, bytes_, offset, bytes);
  if (bytes > 0) std::memset(static_cast<char*>(data_) + offset, 0xff, static_cast<size_t>(bytes));
}

}  // namespace tutti::engine
