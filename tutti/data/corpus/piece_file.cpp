#include "tutti/data/corpus/piece_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/rng.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

constexpr const char* kPieceFileSuffix = ".pieces";

struct FileOnDisk {
  std::string path;
  int64_t bytes = 0;
  struct timespec used {};  // when it was last opened or written
  int64_t size_bytes = 0;
};

std::vector<FileOnDisk> files_in(const std::string& folder) {
  std::vector<FileOnDisk> found;
  for (const DirectoryEntry& entry : posix_file_system().list(folder)) {
    if (!ends_with(entry.name, kPieceFileSuffix)) continue;
    const std::string path = join_path(folder, entry.name);
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) continue;
    found.push_back({path, int64_t{info.st_blocks} * 512, info.st_mtim, int64_t{info.st_size}});
  }
  return found;
}

bool punch(int file, int64_t offset, int64_t size) {
  return ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(size)) == 0;
}

int64_t disk_bytes(int file) {
  struct stat info {};
  return ::fstat(file, &info) == 0 ? int64_t{info.st_blocks} * 512 : 0;
}

// Of a file that no process has open, and none opens meanwhile.
int64_t take_from_front(int file, const FileOnDisk& from, int64_t bytes) {
  constexpr int64_t kUnit = int64_t{1} << 16;  // parts of blocks would free nothing
  const auto taken = [&] { return from.bytes - disk_bytes(file); };
  for (int64_t at = 0; taken() < bytes;) {
    const off_t data = at < from.size_bytes ? ::lseek(file, static_cast<off_t>(at), SEEK_DATA) : -1;
    const int64_t begin = data / kUnit * kUnit;
    const int64_t size = (bytes - taken() + kUnit - 1) / kUnit * kUnit;
    if (data < 0 || !punch(file, begin, size)) {
      // There is no more to take, or only all of it.
      return ::unlink(from.path.c_str()) == 0 ? from.bytes : taken();
    }
    at = begin + size;
  }
  const struct timespec times[2] = {{0, UTIME_OMIT}, from.used};
  ::futimens(file, times);  // it is as old as before
  return taken();
}

}  // namespace

PieceFile::PieceFile(const std::string& folder, const std::string& name, int64_t size_bytes)
    : folder_(folder), path_(join_path(folder, name + kPieceFileSuffix)) {
  posix_file_system().create_directories(folder);
  while (true) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    // Shared with all who have it open; one that was removed in between is opened again.
    if (file_ < 0 || ::flock(file_, LOCK_SH) != 0) break;
    struct stat here {};
    struct stat named {};
    if (::fstat(file_, &here) == 0 && ::stat(path_.c_str(), &named) == 0 &&
        here.st_ino == named.st_ino) {
      break;
    }
    ::close(file_);
  }
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(size_bytes)) != 0) {
    const int error = errno;
    if (file_ >= 0) ::close(file_);
    fail(error == EACCES || error == EROFS ? ErrorKind::permission : ErrorKind::io,
         "cannot keep pieces of a corpus in '{}': {}; set data.cache to another folder", path_,
         std::strerror(error));
  }
}

PieceFile::~PieceFile() { ::close(file_); }

bool PieceFile::read(int64_t offset, int64_t size, char* out) const {
  while (size > 0) {
    const ssize_t count =
        ::pread(file_, out, static_cast<size_t>(size), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    out += count;
    offset += count;
    size -= count;
  }
  return true;
}

bool PieceFile::write(int64_t offset, int64_t size, const char* data) const {
  while (size > 0) {
    const ssize_t count =
        ::pwrite(file_, data, static_cast<size_t>(size), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    offset += count;
    size -= count;
  }
  return true;
}

bool PieceFile::drop(int64_t offset, int64_t size) const { return punch(file_, offset, size); }

bool PieceFile::is_hole(int64_t offset) const {
  const off_t data = ::lseek(file_, static_cast<off_t>(offset), SEEK_DATA);
  return data < 0 ? errno == ENXIO : data > offset;
}

std::vector<PieceFile::Range> PieceFile::kept() const {
  std::vector<Range> ranges;
  int64_t bytes = 0;
  for (off_t at = 0;;) {
    const off_t begin = ::lseek(file_, at, SEEK_DATA);
    at = begin < 0 ? -1 : ::lseek(file_, begin, SEEK_HOLE);
    if (at < 0) break;
    ranges.push_back({begin, at});
    bytes += at - begin;
  }
  // Where holes read as data, nothing is known.
  return bytes - (int64_t{1} << 16) > disk_bytes(file_) ? std::vector<Range>() : ranges;
}

PieceFile::Usage PieceFile::usage() const {
  Usage usage;
  for (const FileOnDisk& file : files_in(folder_)) {
    usage.folder_bytes += file.bytes;
    if (file.path == path_) {
      usage.own_bytes = file.bytes;
    } else if (file.bytes > usage.largest_bytes) {
      usage.largest = file.path;
      usage.largest_bytes = file.bytes;
    }
  }
  return usage;
}

int64_t PieceFile::take_unused(int64_t bytes) const {
  std::vector<FileOnDisk> found = files_in(folder_);
  std::sort(found.begin(), found.end(), [](const FileOnDisk& a, const FileOnDisk& b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec) < std::tie(b.used.tv_sec, b.used.tv_nsec);
  });
  int64_t taken = 0;
  for (const FileOnDisk& file : found) {
    if (taken >= bytes) break;
    if (file.path == path_ || file.bytes == 0) continue;
    const int other = ::open(file.path.c_str(), O_RDWR | O_CLOEXEC);
    if (other < 0) continue;
    if (::flock(other, LOCK_EX | LOCK_NB) == 0) {
      taken += take_from_front(other, file, bytes - taken);
    }
    ::close(other);
  }
  return taken;
}

bool PieceFile::take(const std::string& path, int64_t piece_bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info {};
  if (file < 0 || ::fstat(file, &info) != 0) {
    if (file >= 0) ::close(file);
    return false;
  }
  // Anywhere: which pieces are needed least is known only to the processes that read them.
  const int64_t pieces = (int64_t{info.st_size} + piece_bytes - 1) / piece_bytes;
  const auto now = static_cast<uint64_t>(monotonic_seconds() * 1e9);
  const uint64_t draw = random_u64(now, static_cast<uint64_t>(::getpid()));
  const int64_t from = pieces > 0 ? static_cast<int64_t>(draw % static_cast<uint64_t>(pieces)) : 0;
  off_t data = ::lseek(file, static_cast<off_t>(from * piece_bytes), SEEK_DATA);
  if (data < 0) data = ::lseek(file, 0, SEEK_DATA);
  const bool done = data >= 0 && punch(file, data / piece_bytes * piece_bytes, piece_bytes);
  ::close(file);
  return done;
}

}  // namespace tutti::data
