// A file system in memory that can lose power, fill up and fail: the disk of crash tests.
//
// Durability model, the weakest that POSIX allows:
// - Bytes appended since the last sync() of a file may be lost from the end, survive in any subset
//   of 512-byte sectors (the others read as zero), or survive whole. A truncation by create() that
//   was not synced may be undone.
// - Changes of names (create, make folder, rename, remove) since the last sync_directory() of the
//   folder survive in any subset that keeps the order of changes to one name; a rename is atomic.
//   sync() of a file does not make its name durable.
//
// Every change is recorded as an operation; crash_after(k, seed) rebuilds the disk after the first
// k of them and then loses power. Paths are separated by '/', relative ones start at the root,
// which always exists. All functions are thread-safe. Error kinds are those of posix_file_system().
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"

namespace tutti {

class MemoryDisk;
struct DiskOperation;

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;

  // Changes made since construction or start_record(): 'append run/events.jsonl 120' and so on.
  int64_t operation_count() const;
  std::string operation(int64_t index) const;
  void start_record();  // what is on the disk now is durable; the record starts empty

  // The disk as it may look when power is lost after the first `operations` of the record. Each
  // seed is another choice of what was lost; seed 0 loses all that was not synced, seed 1 nothing.
  std::unique_ptr<MemoryFileSystem> crash_after(int64_t operations, uint64_t seed) const;

  // Files may hold this many bytes in all; an append beyond writes what fits and throws no_space.
  void set_capacity(int64_t bytes);

  // Operation `index` (counted like the record) throws `kind` and changes nothing. Lasting: so does
  // every later one; with no_space only those that need space (create, make folder, append, sync,
  // rename), as on a full disk.
  void fail_operation(int64_t index, ErrorKind kind, bool lasting);
  void clear_faults();

  // Changes one byte on the disk, as bit rot would; not recorded.
  void damage(const std::string& path, int64_t offset, uint8_t mask);
  void cut(const std::string& path, int64_t size_bytes);  // shortens a file; not recorded

  std::unique_ptr<WritableFile> create(const std::string& path) override;
  std::unique_ptr<WritableFile> open_append(const std::string& path) override;
  std::unique_ptr<MappedFile> map(const std::string& path) override;
  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  int64_t size_bytes(const std::string& path) override;
  std::vector<DirectoryEntry> list(const std::string& path) override;
  void create_directories(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_tree(const std::string& path) override;
  void sync_directory(const std::string& path) override;

 private:
  class File;
  struct Fault {
    int64_t operation = 0;
    ErrorKind kind = ErrorKind::io;
    bool lasting = false;
  };

  // Checks faults, applies to the disk, records. Needs the lock.
  void perform(DiskOperation operation);
  void append(int64_t node, const std::string& path, const void* data, size_t size);
  std::unique_ptr<WritableFile> open(const std::string& path, bool truncate);

  mutable std::mutex mutex_;
  std::unique_ptr<MemoryDisk> disk_;
  std::unique_ptr<MemoryDisk> start_;  // the disk when the record started
  std::vector<DiskOperation> record_;
  int64_t attempts_ = 0;  // operations begun, failed ones too
  std::optional<Fault> fault_;
  std::optional<int64_t> capacity_bytes_;
};

}  // namespace tutti
