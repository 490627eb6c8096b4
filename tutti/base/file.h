// All file access of the program goes through FileSystem, so that crashes, full disks and torn
// writes are ordinary tests: posix_file_system() is the machine's, MemoryFileSystem
// (base/testing/memory_file.h) one that can lose power.
//
// Durability contract, as POSIX gives it: bytes are durable after sync(); a name (creation,
// rename, removal) is durable after sync_directory() of its folder. Everything throws Error with
// the path in the message; map() of a stream, which keeps no bytes, throws usage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(const void* data, size_t size) = 0;
  virtual void sync() = 0;   // returns when the bytes are durable
  virtual void close() = 0;  // the destructor closes too, but cannot report failure
};

// A read-only view of a whole file; the bytes stay valid while the object lives.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::string_view bytes() const = 0;
  // Hints that [offset, offset + size) is needed soon, or no longer; never fails.
  virtual void will_need(size_t offset, size_t size) const;
  virtual void not_needed(size_t offset, size_t size) const;
};

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;
  int64_t size_bytes = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;  // truncates
  virtual std::unique_ptr<WritableFile> open_append(const std::string& path) = 0;
  virtual std::unique_ptr<MappedFile> map(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  // Whether `path` is a device, a pipe or a socket: what bytes go through and are not kept.
  virtual bool is_stream(const std::string& /*path*/) { return false; }
  virtual int64_t size_bytes(const std::string& path) = 0;
  virtual std::vector<DirectoryEntry> list(const std::string& path) = 0;  // sorted by name
  virtual void create_directories(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_tree(const std::string& path) = 0;  // no error when absent
  virtual void sync_directory(const std::string& path) = 0;
  // The absolute path that `path` leads to when symbolic links are followed; `path` itself where
  // there are no links, or nothing of that name.
  virtual std::string resolve(const std::string& path) { return path; }
};

FileSystem& posix_file_system();

// Whole small files.
std::string read_file(FileSystem& files, const std::string& path);
// Writes `path` so that after a crash it holds the old or the new bytes: temporary file, sync,
// rename, directory sync. After an error the temporary file is gone. A stream (/dev/stdout, a pipe)
// gets the bytes and stays what it is.
void write_file_atomic(FileSystem& files, const std::string& path, std::string_view bytes);

std::string join_path(std::string_view folder, std::string_view name);
std::string parent_path(std::string_view path);  // "." when there is none
std::string base_name(std::string_view path);

}  // namespace tutti
