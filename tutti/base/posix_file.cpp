// The machine's file system.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/mapped_range.h"

namespace tutti {
namespace {

[[noreturn]] void fail_errno(const char* action, const std::string& path, int error = errno) {
  ErrorKind kind = ErrorKind::io;
  const char* remedy = "";
  switch (error) {
    case ENOENT:
    case ENOTDIR: kind = ErrorKind::not_found; break;
    case EACCES:
    case EPERM:
    case EROFS: kind = ErrorKind::permission; break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      kind = ErrorKind::no_space;
      remedy = "; free some space or choose another folder";
      break;
    default: break;
  }
  fail(kind, "cannot {} '{}': {}{}", action, path, std::strerror(error), remedy);
}

// Throws usage for what bytes only go through: opening a pipe to read blocks until there is a
// writer, opening a device may do anything, and neither has a size.
void check_keeps_bytes(mode_t mode, const std::string& path) {
  const char* what = S_ISFIFO(mode)                   ? "a pipe"
                     : S_ISSOCK(mode)                 ? "a socket"
                     : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                                      : nullptr;
  if (what == nullptr) return;
  fail(ErrorKind::usage, "cannot read '{}': it is {}, not a file; write its contents to a file",
       path, what);
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int flags)
      : path_(std::move(path)), fd_(::open(path_.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail_errno("write", path_);
  }
  PosixWritableFile(const PosixWritableFile&) = delete;
  PosixWritableFile& operator=(const PosixWritableFile&) = delete;
  ~PosixWritableFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  void append(const void* data, size_t size) override {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(fd_, next, std::min(size, size_t{1} << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_errno("write", path_);
      next += written;
      size -= static_cast<size_t>(written);
    }
  }

  void sync() override {
    if (::fdatasync(fd_) != 0) fail_errno("sync", path_);
  }

  void close() override {
    const int fd = fd_;
    fd_ = -1;
    if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) fail_errno("close", path_);
  }

 private:
  std::string path_;
  int fd_;
};

class PosixMappedFile final : public MappedFile {
 public:
  explicit PosixMappedFile(const std::string& path) : path_(path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) check_keeps_bytes(info.st_mode, path);
    // A file that became a pipe since is not waited for.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fail_errno("read", path);
    int error = ::fstat(fd, &info) != 0 ? errno : 0;
    if (error == 0 && S_ISDIR(info.st_mode)) error = EISDIR;
    if (error == 0 && info.st_size > 0) {
      size_ = static_cast<size_t>(info.st_size);
      data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
      if (data_ == MAP_FAILED) error = errno;
    }
    ::close(fd);
    if (error != 0) {
      data_ = nullptr;
      fail_errno("read", path, error);
    }
    range_.emplace(data_, size_, path_);
  }
  PosixMappedFile(const PosixMappedFile&) = delete;
  PosixMappedFile& operator=(const PosixMappedFile&) = delete;
  ~PosixMappedFile() override {
    range_.reset();
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  std::string_view bytes() const override { return {static_cast<const char*>(data_), size_}; }
  void will_need(size_t offset, size_t size) const override { advise(offset, size, MADV_WILLNEED); }
  void not_needed(size_t offset, size_t size) const override {
    advise(offset, size, MADV_DONTNEED);
  }

 private:
  void advise(size_t offset, size_t size, int advice) const {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t begin = offset / page * page;
    const size_t end = std::min(size_, offset + size);
    if (begin < end) ::madvise(static_cast<char*>(data_) + begin, end - begin, advice);
  }

  const std::string path_;
  void* data_ = nullptr;
  size_t size_ = 0;
  std::optional<MappedRange> range_;
};

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(path, O_WRONLY | O_CREAT | O_TRUNC);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(path, O_WRONLY | O_CREAT | O_APPEND);
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    return std::make_unique<PosixMappedFile>(path);
  }
  // A disk or server that does not answer is not taken for a file that is not there: callers remove
  // and recreate what they do not find.
  bool exists(const std::string& path) override {
    if (::access(path.c_str(), F_OK) == 0) return true;
    const bool is_absent =
        errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ENAMETOOLONG;
    if (!is_absent) fail_errno("look for", path);
    return false;
  }
  bool is_directory(const std::string& path) override {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }
  bool is_stream(const std::string& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return false;
    return !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  }
  int64_t size_bytes(const std::string& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) fail_errno("read", path);
    return info.st_size;
  }
  std::vector<DirectoryEntry> list(const std::string& path) override {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) fail_errno("list", path);
    std::vector<DirectoryEntry> entries;
    int error = 0;
    while (true) {
      errno =
          0;  // distinguishes the end from a failure: half a list would hide the newest checkpoint
      const dirent* entry = ::readdir(directory);
      if (entry == nullptr) {
        error = errno;
        break;
      }
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      struct stat info {};
      if (::stat(join_path(path, name).c_str(), &info) != 0) continue;  // gone, or a dead link
      entries.push_back({name, S_ISDIR(info.st_mode), info.st_size});
    }
    ::closedir(directory);
    if (error != 0) fail_errno("list", path, error);
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }
  void create_directories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) fail_errno("create folder", path, error.value());
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_errno("rename to", to);
  }
  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) fail_errno("remove", path);
  }
  void remove_tree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) fail_errno("remove", path, error.value());
  }
  void sync_directory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail_errno("sync folder", path);
    const int error = ::fsync(fd) != 0 ? errno : 0;
    ::close(fd);
    // Some network file systems cannot sync a folder; they commit names at once.
    if (error != 0 && error != EINVAL && error != ENOTSUP) fail_errno("sync folder", path, error);
  }
  std::string resolve(const std::string& path) override {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
    return error ? path : real.string();
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem files;
  return files;
}

}  // namespace tutti
