#include "tutti/engine/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/engine/device_memory.h"

namespace tutti::engine {
namespace {

bool of_accelerator(ArenaKind kind) {
  return kind == ArenaKind::device || kind == ArenaKind::pinned;
}

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int kMadviseCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older headers lack

// Fresh anonymous pages are zero and page-aligned. They are populated here, so that no page fault
// delays a step and a machine with too little memory fails at once. Both are hints: older kernels
// lack them.
void populate(void* data, int64_t bytes) {
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  madvise(data, static_cast<size_t>(bytes), MADV_POPULATE_WRITE);
}

}  // namespace

// Linux rarely backs shared memory with huge pages by itself, but collapses pages into them on
// request: a block then needs its first page and an address that is a multiple of its size.
void* map_shared(int file_descriptor, int64_t bytes) {
  const auto reserved = static_cast<size_t>(bytes + kHugePage);
  void* space = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (space == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(space);
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % kHugePage);
  char* data = begin + (past == 0 ? 0 : kHugePage - past);
  if (mmap(data, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           file_descriptor, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(space, reserved);
    errno = error;
    return nullptr;
  }
  const int64_t page = sysconf(_SC_PAGESIZE);
  char* end = data + (bytes + page - 1) / page * page;
  if (data > begin) munmap(begin, static_cast<size_t>(data - begin));
  if (begin + reserved > end) munmap(end, static_cast<size_t>(begin + reserved - end));
  const int64_t huge = bytes / kHugePage * kHugePage;
  for (int64_t at = 0; at < huge; at += kHugePage) {
    madvise(data + at, static_cast<size_t>(page), MADV_POPULATE_WRITE);
  }
  if (huge > 0) madvise(data, static_cast<size_t>(huge), kMadviseCollapse);
  populate(data, bytes);
  return data;
}

Arena::Arena(std::string name, int64_t bytes, ArenaKind kind)
    : name_(std::move(name)), bytes_(bytes), kind_(kind) {
  TUTTI_CHECK(bytes >= 0, "arena {}: {} bytes", name_, bytes);
  if (bytes == 0) return;
  if (of_accelerator(kind)) {
    data_ = allocate_device_memory(name_, bytes, kind);
    return;
  }
  if (kind == ArenaKind::shared) {
    file_descriptor_ = memfd_create(name_.c_str(), MFD_CLOEXEC);
    if (file_descriptor_ < 0 || ftruncate(file_descriptor_, bytes) != 0) {
      const int error = errno;
      if (file_descriptor_ >= 0) close(file_descriptor_);
      fail(ErrorKind::unsupported, "arena {}: cannot allocate {} bytes of shared memory ({})",
           name_, bytes, std::strerror(error));
    }
  }
  const bool shared = file_descriptor_ >= 0;
  void* data = nullptr;
  if (shared) {
    data = map_shared(file_descriptor_, bytes);
  } else {
    data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) data = nullptr;
  }
  if (data == nullptr) {
    const int error = errno;
    if (shared) close(file_descriptor_);
    fail(ErrorKind::unsupported,
         "arena {}: cannot allocate {} bytes of memory ({}); choose a smaller micro-batch or model",
         name_, bytes, std::strerror(error));
  }
  data_ = data;
  if (!shared) populate(data_, bytes);
}

Arena::~Arena() {
  if (of_accelerator(kind_)) {
    if (data_ != nullptr) free_device_memory(data_, kind_);
  } else if (data_ != nullptr) {
    munmap(data_, static_cast<size_t>(bytes_));
  }
  if (file_descriptor_ >= 0) close(file_descriptor_);
}

Arena::Arena(Arena&& other) noexcept
    : name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, 0)),
      kind_(other.kind_),
      data_(std::exchange(other.data_, nullptr)),
      file_descriptor_(std::exchange(other.file_descriptor_, -1)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
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
  if (bytes == 0) return;
  char* from = static_cast<char*>(data_) + offset;
  if (kind_ == ArenaKind::device) {
    fill_device_memory(from, 0xff, bytes);
  } else {
    std::memset(from, 0xff, static_cast<size_t>(bytes));
  }
}

}  // namespace tutti::engine
