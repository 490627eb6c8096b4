#include "tutti/base/testing/memory_file.h"

#include <algorithm>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/testing/memory_disk.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

bool needs_space(DiskAction action) {
  return action != DiskAction::remove_file && action != DiskAction::remove_folder &&
         action != DiskAction::sync_folder;
}

class Bytes final : public MappedFile {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view bytes() const override { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace

class MemoryFileSystem::File final : public WritableFile {
 public:
  File(MemoryFileSystem& files, int64_t node, std::string path)
      : files_(files), node_(node), path_(std::move(path)) {}

  void append(const void* data, size_t size) override {
    check_open();
    files_.append(node_, path_, data, size);
  }
  void sync() override {
    check_open();
    const std::lock_guard lock(files_.mutex_);
    files_.perform(
        {.action = DiskAction::sync, .path = path_, .to = {}, .node = node_, .data = {}});
  }
  void close() override { open_ = false; }

 private:
  void check_open() const {
    if (!open_) fail(ErrorKind::io, "cannot write '{}': it is closed", path_);
  }

  MemoryFileSystem& files_;
  int64_t node_;
  std::string path_;
  bool open_ = true;
};

MemoryFileSystem::MemoryFileSystem()
    : disk_(std::make_unique<MemoryDisk>()), start_(std::make_unique<MemoryDisk>()) {}

MemoryFileSystem::~MemoryFileSystem() = default;

int64_t MemoryFileSystem::operation_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(record_.size());
}

std::string MemoryFileSystem::operation(int64_t index) const {
  const std::lock_guard lock(mutex_);
  const DiskOperation& operation = record_.at(static_cast<size_t>(index));
  std::string text = fmt::format("{} {}", disk_action_name(operation.action), operation.path);
  if (operation.action == DiskAction::rename) text += " " + operation.to;
  if (operation.action == DiskAction::append) text += fmt::format(" {}", operation.data.size());
  return text;
}

void MemoryFileSystem::start_record() {
  const std::lock_guard lock(mutex_);
  disk_->make_durable();
  *start_ = *disk_;
  record_.clear();
  attempts_ = 0;
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::crash_after(int64_t operations,
                                                                uint64_t seed) const {
  const std::lock_guard lock(mutex_);
  TUTTI_CHECK(operations >= 0 && operations <= static_cast<int64_t>(record_.size()),
              "crash after operation {} of {}", operations, record_.size());
  auto after = std::make_unique<MemoryFileSystem>();
  *after->disk_ = *start_;
  for (int64_t i = 0; i < operations; ++i) after->disk_->apply(record_[static_cast<size_t>(i)]);
  after->disk_->lose_power(seed);
  *after->start_ = *after->disk_;
  return after;
}

void MemoryFileSystem::set_capacity(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
}

void MemoryFileSystem::fail_operation(int64_t index, ErrorKind kind, bool lasting) {
  const std::lock_guard lock(mutex_);
  fault_ = Fault{index, kind, lasting};
}

void MemoryFileSystem::clear_faults() {
  const std::lock_guard lock(mutex_);
  fault_.reset();
  capacity_bytes_.reset();
}

void MemoryFileSystem::damage(const std::string& path, int64_t offset, uint8_t mask) {
  const std::lock_guard lock(mutex_);
  char& byte = disk_->data(disk_->find(path)).at(static_cast<size_t>(offset));
  byte = static_cast<char>(static_cast<uint8_t>(byte) ^ mask);
}

void MemoryFileSystem::cut(const std::string& path, int64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  std::string& data = disk_->data(disk_->find(path));
  TUTTI_CHECK(size_bytes >= 0 && size_bytes <= static_cast<int64_t>(data.size()),
              "cut {} bytes to {}", data.size(), size_bytes);
  data.resize(static_cast<size_t>(size_bytes));
}

void MemoryFileSystem::perform(DiskOperation operation) {
  const int64_t attempt = attempts_++;
  if (fault_ &&
      (attempt == fault_->operation || (fault_->lasting && attempt > fault_->operation)) &&
      (fault_->kind != ErrorKind::no_space || needs_space(operation.action))) {
    fail(fault_->kind, "cannot {} '{}': {}", disk_action_name(operation.action), operation.path,
         fault_->kind == ErrorKind::no_space ? "No space left on device" : "Input/output error");
  }
  try {
    disk_->apply(operation);
  } catch (const Error&) {
    --attempts_;
    throw;
  }
  record_.push_back(std::move(operation));
}

void MemoryFileSystem::append(int64_t node, const std::string& path, const void* data,
                              size_t size) {
  const std::lock_guard lock(mutex_);
  size_t fits = size;
  if (capacity_bytes_) {
    const int64_t free_bytes = std::max<int64_t>(0, *capacity_bytes_ - disk_->used_bytes());
    fits = std::min(size, static_cast<size_t>(free_bytes));
  }
  if (fits > 0) {
    perform({.action = DiskAction::append,
             .path = path,
             .to = {},
             .node = node,
             .data = std::string(static_cast<const char*>(data), fits)});
  }
  if (fits < size) {
    fail(ErrorKind::no_space, "cannot write '{}': No space left on device", path);
  }
}

std::unique_ptr<WritableFile> MemoryFileSystem::open(const std::string& path, bool truncate) {
  const std::lock_guard lock(mutex_);
  const int64_t found = disk_->find(path);
  if (found != MemoryDisk::kNone && disk_->is_directory(found)) {
    fail(ErrorKind::io, "cannot write '{}': Is a directory", path);
  }
  if (truncate || found == MemoryDisk::kNone) {
    perform({.action = DiskAction::create,
             .path = path,
             .to = {},
             .node = MemoryDisk::kNone,
             .data = {}});
  }
  return std::make_unique<File>(*this, disk_->find(path), path);
}

std::unique_ptr<WritableFile> MemoryFileSystem::create(const std::string& path) {
  return open(path, true);
}

std::unique_ptr<WritableFile> MemoryFileSystem::open_append(const std::string& path) {
  return open(path, false);
}

std::unique_ptr<MappedFile> MemoryFileSystem::map(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int64_t at = disk_->find(path);
  if (at == MemoryDisk::kNone) {
    fail(ErrorKind::not_found, "cannot read '{}': No such file or directory", path);
  }
  if (disk_->is_directory(at)) fail(ErrorKind::io, "cannot read '{}': Is a directory", path);
  return std::make_unique<Bytes>(disk_->data(at));
}

bool MemoryFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return disk_->find(path) != MemoryDisk::kNone;
}

bool MemoryFileSystem::is_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int64_t at = disk_->find(path);
  return at != MemoryDisk::kNone && disk_->is_directory(at);
}

int64_t MemoryFileSystem::size_bytes(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int64_t at = disk_->find(path);
  if (at == MemoryDisk::kNone) {
    fail(ErrorKind::not_found, "cannot read '{}': No such file or directory", path);
  }
  return static_cast<int64_t>(disk_->data(at).size());
}

std::vector<DirectoryEntry> MemoryFileSystem::list(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return disk_->list(path);
}

void MemoryFileSystem::create_directories(const std::string& path) {
  const std::lock_guard lock(mutex_);
  std::string prefix = starts_with(path, "/") ? "/" : "";
  for (const std::string& part : disk_path_parts(path)) {
    prefix = join_path(prefix, part);
    const int64_t at = disk_->find(prefix);
    if (at == MemoryDisk::kNone) {
      perform({.action = DiskAction::make_folder,
               .path = prefix,
               .to = {},
               .node = MemoryDisk::kNone,
               .data = {}});
    } else if (!disk_->is_directory(at)) {
      fail(ErrorKind::not_found, "cannot create folder '{}': Not a directory", prefix);
    }
  }
}

void MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  perform({.action = DiskAction::rename,
           .path = from,
           .to = to,
           .node = MemoryDisk::kNone,
           .data = {}});
}

void MemoryFileSystem::remove_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  perform({.action = DiskAction::remove_file,
           .path = path,
           .to = {},
           .node = MemoryDisk::kNone,
           .data = {}});
}

void MemoryFileSystem::remove_tree(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto remove = [this](const auto& self, const std::string& at) -> void {
    const bool directory = disk_->is_directory(disk_->find(at));
    if (directory) {
      for (const DirectoryEntry& entry : disk_->list(at)) self(self, join_path(at, entry.name));
    }
    perform({.action = directory ? DiskAction::remove_folder : DiskAction::remove_file,
             .path = at,
             .to = {},
             .node = MemoryDisk::kNone,
             .data = {}});
  };
  if (disk_->find(path) != MemoryDisk::kNone) remove(remove, path);
}

void MemoryFileSystem::sync_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  perform({.action = DiskAction::sync_folder,
           .path = path,
           .to = {},
           .node = MemoryDisk::kNone,
           .data = {}});
}

}  // namespace tutti
