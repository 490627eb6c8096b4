#include "tutti/data/corpus/piece_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

constexpr const char* kPieceFileSuffix = ".pieces";

struct FileOnDisk {
  std::string path;
  int64_t bytes = 0;
  int64_t used_seconds = 0;  // when it was last opened or written
};

std::vector<FileOnDisk> files_in(const std::string& folder) {
  std::vector<FileOnDisk> found;
  for (const DirectoryEntry& entry : posix_file_system().list(folder)) {
    if (!ends_with(entry.name, kPieceFileSuffix)) continue;
    const std::string path = join_path(folder, entry.name);
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) continue;
    found.push_back({path, int64_t{info.st_blocks} * 512, info.st_mtim.tv_sec});
  }
  return found;
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

void PieceFile::drop(int64_t offset, int64_t size) const {
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size));
}

std::vector<PieceFile::Range> PieceFile::kept() const {
  std::vector<Range> ranges;
  off_t at = 0;
  while (true) {
    const off_t begin = ::lseek(file_, at, SEEK_DATA);
    if (begin < 0) return ranges;
    at = ::lseek(file_, begin, SEEK_HOLE);
    if (at < 0) return ranges;
    ranges.push_back({begin, at});
  }
}

int64_t PieceFile::folder_bytes() const {
  int64_t bytes = 0;
  for (const FileOnDisk& file : files_in(folder_)) bytes += file.bytes;
  return bytes;
}

void PieceFile::remove_unused(int64_t bound_bytes) const {
  std::vector<FileOnDisk> found = files_in(folder_);
  std::sort(found.begin(), found.end(), [](const FileOnDisk& a, const FileOnDisk& b) {
    return a.used_seconds < b.used_seconds;
  });
  int64_t bytes = 0;
  for (const FileOnDisk& file : found) bytes += file.bytes;
  for (const FileOnDisk& file : found) {
    if (bytes <= bound_bytes) return;
    if (file.path == path_) continue;
    const int other = ::open(file.path.c_str(), O_RDWR | O_CLOEXEC);
    if (other < 0) continue;
    if (::flock(other, LOCK_EX | LOCK_NB) == 0 && ::unlink(file.path.c_str()) == 0) {
      bytes -= file.bytes;
    }
    ::close(other);
  }
}

}  // namespace tutti::data
