#include "tutti/base/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/page_cache.h"

namespace tutti {
namespace {

// More than this share of a file in memory, and its reads are memory's.
constexpr double kMostCached = 0.05;

[[noreturn]] void fail_errno(const char* action, const std::string& path) {
  const int error = errno;
  const ErrorKind kind = error == ENOENT                      ? ErrorKind::not_found
                         : error == EACCES || error == EPERM  ? ErrorKind::permission
                         : error == ENOSPC || error == EDQUOT ? ErrorKind::no_space
                                                              : ErrorKind::io;
  fail(kind, "cannot {} '{}': {}", action, path, std::strerror(error));
}

// The share of the file that is in the page cache, 1 where the system does not say.
double cached_share(int fd, int64_t size_bytes) {
  if (size_bytes == 0) return 0;
  const auto size = static_cast<size_t>(size_bytes);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return 1;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  const bool known = ::mincore(data, size, pages.data()) == 0;
  ::munmap(data, size);
  if (!known) return 1;
  const auto cached = std::count_if(pages.begin(), pages.end(),
                                    [](unsigned char bits) { return (bits & 1U) != 0; });
  return static_cast<double>(cached) / static_cast<double>(pages.size());
}

}  // namespace

AlignedBytes make_aligned_bytes(int64_t bytes) {
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + kDirectBytes - 1) / kDirectBytes;
  void* memory = std::aligned_alloc(static_cast<size_t>(kDirectBytes),
                                    static_cast<size_t>(rounded * kDirectBytes));
  if (memory == nullptr) throw std::bad_alloc();
  return AlignedBytes(static_cast<char*>(memory));
}

const char* read_source_text(ReadSource source) {
  switch (source) {
    case ReadSource::device: return "O_DIRECT";
    case ReadSource::dropped: return "page cache dropped before";
    case ReadSource::memory: return "IN MEMORY, not from a disk";
  }
  return "";
}

DirectFile::DirectFile(const std::string& path, Use use) : path_(path) {
  const bool dropped = drop_cached_file(path);
  const int flags = (use == Use::read ? O_RDONLY : O_RDWR) | O_CLOEXEC;
  fd_ = ::open(path.c_str(), flags | O_DIRECT);
  if (fd_ < 0 && errno == EINVAL) {
    fd_ = ::open(path.c_str(), flags);
    source_ = ReadSource::dropped;
  }
  if (fd_ < 0) fail_errno("open", path);
  struct stat info {};
  if (::fstat(fd_, &info) != 0) {
    ::close(fd_);
    fail_errno("read", path);
  }
  size_bytes_ = info.st_size;
  // What a file system keeps in memory only takes O_DIRECT too, since Linux 6.6.
  if (!dropped || cached_share(fd_, size_bytes_) > kMostCached) source_ = ReadSource::memory;
}

DirectFile::~DirectFile() { ::close(fd_); }

void DirectFile::read(int64_t offset, int64_t size, void* out) const {
  TUTTI_CHECK(offset >= 0 && offset + size <= size_bytes_, "[{}, {}) of {}", offset, offset + size,
              size_bytes_);
  char* next = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, next, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path_);
    if (got == 0) fail(ErrorKind::io, "cannot read '{}': it became shorter", path_);
    next += got;
    offset += got;
    size -= got;
  }
}

void DirectFile::write(int64_t offset, int64_t size, const void* data) const {
  TUTTI_CHECK(offset >= 0 && offset + size <= size_bytes_, "[{}, {}) of {}", offset, offset + size,
              size_bytes_);
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::pwrite(fd_, next, static_cast<size_t>(size), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("write", path_);
    next += put;
    offset += put;
    size -= put;
  }
}

void DirectFile::sync() const {
  if (::fdatasync(fd_) != 0) fail_errno("sync", path_);
}

std::optional<DiskSpace> disk_space(const std::string& path) {
  struct statvfs disk {};
  if (::statvfs(path.c_str(), &disk) != 0) return std::nullopt;
  const auto block = static_cast<double>(disk.f_frsize);
  return DiskSpace{static_cast<double>(disk.f_blocks) * block,
                   static_cast<double>(disk.f_bavail) * block};
}

}  // namespace tutti
