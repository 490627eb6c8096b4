#include "tutti/base/memory_file.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/rng.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr size_t kSectorBytes = 512;
constexpr int64_t kRoot = 0;
constexpr int64_t kNone = -1;

enum class Action {
  create,
  make_folder,
  append,
  sync,
  rename,
  remove_file,
  remove_folder,
  sync_folder
};

const char* action_name(Action action) {
  switch (action) {
    case Action::create: return "create";
    case Action::make_folder: return "make_folder";
    case Action::append: return "append";
    case Action::sync: return "sync";
    case Action::rename: return "rename";
    case Action::remove_file: return "remove_file";
    case Action::remove_folder: return "remove_folder";
    case Action::sync_folder: return "sync_folder";
  }
  return "";
}

bool needs_space(Action action) {
  return action != Action::remove_file && action != Action::remove_folder &&
         action != Action::sync_folder;
}

std::vector<std::string> path_parts(const std::string& path) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") fail(ErrorKind::unsupported, "'{}': '..' in a path in memory", path);
    parts.emplace_back(part);
  }
  return parts;
}

// Answers of one seed, in the order asked.
class Chance {
 public:
  explicit Chance(uint64_t seed) : key_(stream_key(seed, "power cut")) {}
  double uniform() { return random_uniform(key_, next_++); }
  bool yes(double probability) { return uniform() < probability; }
  size_t below(size_t n) { return static_cast<size_t>(random_u64(key_, next_++) % n); }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

class Bytes final : public MappedFile {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view bytes() const override { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace

struct MemoryFileSystem::Operation {
  Action action = Action::create;
  std::string path;
  std::string to;        // rename
  int64_t node = kNone;  // append, sync
  std::string data;      // append
};

// A value: nodes (files and folders) refer to each other by index, so that copies are independent.
class MemoryFileSystem::Disk {
 public:
  Disk() { nodes_.push_back({.directory = true}); }

  void apply(const Operation& operation) {
    const std::string& path = operation.path;
    switch (operation.action) {
      case Action::create: create(path); break;
      case Action::make_folder: add_node(place_of(path), path, {.directory = true}); break;
      case Action::append: nodes_[index(operation.node)].data += operation.data; break;
      case Action::sync: {
        Node& file = nodes_[index(operation.node)];
        file.synced_bytes = file.data.size();
        file.before_truncation.reset();
        break;
      }
      case Action::rename: rename(path, operation.to); break;
      case Action::remove_file:
        if (node(path, "remove").directory) {
          fail(ErrorKind::io, "cannot remove '{}': Is a directory", path);
        }
        change({{place_of(path), kNone}});
        break;
      case Action::remove_folder:
        TUTTI_CHECK(node(path, "remove").entries.empty(), "'{}' is not empty", path);
        change({{place_of(path), kNone}});
        break;
      case Action::sync_folder: sync_folder(path); break;
    }
  }

  // kNone when there is nothing of that name.
  int64_t find(const std::string& path) const {
    int64_t at = kRoot;
    for (const std::string& part : path_parts(path)) {
      const Node& folder = nodes_[index(at)];
      const auto entry = folder.entries.find(part);
      if (!folder.directory || entry == folder.entries.end()) return kNone;
      at = entry->second;
    }
    return at;
  }
  bool is_directory(int64_t at) const { return nodes_[index(at)].directory; }
  const std::string& data(int64_t at) const { return nodes_[index(at)].data; }
  std::string& data(int64_t at) { return nodes_[index(at)].data; }

  std::vector<DirectoryEntry> list(const std::string& path) const {
    const int64_t at = find(path);
    if (at == kNone || !is_directory(at)) {
      fail(ErrorKind::not_found, "cannot list '{}': {}", path,
           at == kNone ? "No such file or directory" : "Not a directory");
    }
    std::vector<DirectoryEntry> entries;
    for (const auto& [name, child] : nodes_[index(at)].entries) {
      const Node& node = nodes_[index(child)];
      entries.push_back({name, node.directory, static_cast<int64_t>(node.data.size())});
    }
    return entries;
  }

  // Bytes of all files that have a name.
  int64_t used_bytes(int64_t at = kRoot) const {
    const Node& node = nodes_[index(at)];
    auto used = static_cast<int64_t>(node.data.size());
    for (const auto& [name, child] : node.entries) used += used_bytes(child);
    return used;
  }

  void make_durable() {
    pending_.clear();
    for (Node& node : nodes_) {
      node.synced_bytes = node.data.size();
      node.before_truncation.reset();
      node.durable_entries = node.entries;
    }
  }

  void lose_power(uint64_t seed) {
    Chance chance(seed);
    for (Node& node : nodes_) node.data = surviving_bytes(node, seed, chance);
    const double likely = chance.uniform();
    std::set<Place> blocked;  // a change that was lost takes later ones of the same name with it
    for (const Change& change : pending_) {
      bool survives = seed == 1 || (seed > 1 && chance.yes(likely));
      for (const Touch& touch : change) survives = survives && blocked.count(touch.place) == 0;
      for (const Touch& touch : change) {
        if (survives) {
          set_entry(&Node::durable_entries, touch);
        } else {
          blocked.insert(touch.place);
        }
      }
    }
    for (Node& node : nodes_) node.entries = node.durable_entries;
    make_durable();
  }

 private:
  using Place = std::pair<int64_t, std::string>;  // folder and name in it
  struct Touch {
    Place place;
    int64_t node;  // what the name refers to afterwards, or kNone
  };
  using Change = std::vector<Touch>;  // happens whole or not at all

  struct Node {
    bool directory = false;
    std::map<std::string, int64_t> entries{};
    std::map<std::string, int64_t> durable_entries{};
    std::string data{};
    size_t synced_bytes = 0;                         // this much of `data` is durable
    std::optional<std::string> before_truncation{};  // durable until the next sync
  };

  static size_t index(int64_t node) {
    TUTTI_CHECK(node >= 0, "no node");
    return static_cast<size_t>(node);
  }

  const Node& node(const std::string& path, const char* action) const {
    const int64_t at = find(path);
    if (at == kNone) {
      fail(ErrorKind::not_found, "cannot {} '{}': No such file or directory", action, path);
    }
    return nodes_[index(at)];
  }

  // Where the name `path` is or would be.
  Place place_of(const std::string& path) const {
    std::vector<std::string> parts = path_parts(path);
    TUTTI_CHECK(!parts.empty(), "'{}' names the root", path);
    const std::string name = std::move(parts.back());
    parts.pop_back();
    const int64_t folder = find(join(parts, "/"));
    if (folder == kNone || !is_directory(folder)) {
      fail(ErrorKind::not_found, "cannot write '{}': {}", path,
           folder == kNone ? "No such file or directory" : "Not a directory");
    }
    return {folder, name};
  }

  void set_entry(std::map<std::string, int64_t> Node::*entries, const Touch& touch) {
    auto& names = nodes_[index(touch.place.first)].*entries;
    if (touch.node == kNone) {
      names.erase(touch.place.second);
    } else {
      names[touch.place.second] = touch.node;
    }
  }

  void change(Change change) {
    for (const Touch& touch : change) set_entry(&Node::entries, touch);
    pending_.push_back(std::move(change));
  }

  void add_node(const Place& place, const std::string& path, Node node) {
    if (nodes_[index(place.first)].entries.count(place.second) > 0) {
      fail(ErrorKind::io, "cannot create '{}': File exists", path);
    }
    nodes_.push_back(std::move(node));
    change({{place, static_cast<int64_t>(nodes_.size()) - 1}});
  }

  void create(const std::string& path) {
    const int64_t at = find(path);
    if (at == kNone) {
      add_node(place_of(path), path, {});
      return;
    }
    Node& file = nodes_[index(at)];
    if (file.directory) fail(ErrorKind::io, "cannot write '{}': Is a directory", path);
    if (!file.before_truncation) file.before_truncation = file.data.substr(0, file.synced_bytes);
    file.data.clear();
    file.synced_bytes = 0;
  }

  void rename(const std::string& from, const std::string& to) {
    const int64_t source = find(from);
    if (source == kNone) {
      fail(ErrorKind::not_found, "cannot rename '{}' to '{}': No such file or directory", from, to);
    }
    const bool directory = is_directory(source);
    const int64_t target = find(to);
    if (target == source) return;
    if (target != kNone) {
      const Node& old = nodes_[index(target)];
      if (old.directory != directory || !old.entries.empty()) {
        fail(old.directory || !directory ? ErrorKind::io : ErrorKind::not_found,
             "cannot rename to '{}': it is in the way", to);
      }
    }
    change({{place_of(from), kNone}, {place_of(to), source}});
  }

  // Commits the changes in this folder, and earlier ones that they build on.
  void sync_folder(const std::string& path) {
    const Node& synced = node(path, "sync folder");
    if (!synced.directory) {
      fail(ErrorKind::not_found, "cannot sync folder '{}': Not a directory", path);
    }
    const int64_t folder = find(path);
    std::set<Place> wanted;
    std::vector<bool> commit(pending_.size(), false);
    for (size_t i = pending_.size(); i-- > 0;) {
      for (const Touch& touch : pending_[i]) {
        if (touch.place.first == folder || wanted.count(touch.place) > 0) commit[i] = true;
      }
      if (!commit[i]) continue;
      for (const Touch& touch : pending_[i]) wanted.insert(touch.place);
    }
    std::vector<Change> rest;
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (!commit[i]) {
        rest.push_back(std::move(pending_[i]));
        continue;
      }
      for (const Touch& touch : pending_[i]) set_entry(&Node::durable_entries, touch);
    }
    pending_ = std::move(rest);
  }

  static std::string surviving_bytes(const Node& node, uint64_t seed, Chance& chance) {
    if (seed == 1) return node.data;
    if (node.before_truncation && (seed == 0 || chance.yes(0.5))) return *node.before_truncation;
    const size_t synced = node.synced_bytes;
    const size_t size = node.data.size();
    if (seed == 0 || synced == size) return node.data.substr(0, synced);
    switch (chance.below(5)) {
      case 0: return node.data.substr(0, synced);
      case 1: return node.data;
      case 2: return node.data.substr(0, synced + chance.below(size - synced));
      case 3: return node.data.substr(0, synced) + std::string(size - synced, '\0');
      default: break;
    }
    const size_t cut = chance.yes(0.5) ? 0 : chance.below(size - synced);
    std::string torn = node.data.substr(0, size - cut);
    const double likely = chance.uniform();
    for (size_t begin = synced; begin < torn.size();) {
      const size_t end = std::min(torn.size(), (begin / kSectorBytes + 1) * kSectorBytes);
      if (!chance.yes(likely))
        std::fill(torn.begin() + static_cast<int64_t>(begin),
                  torn.begin() + static_cast<int64_t>(end), '\0');
      begin = end;
    }
    return torn;
  }

  std::vector<Node> nodes_;
  std::vector<Change> pending_;  // not yet durable, oldest first
};

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
    files_.perform({.action = Action::sync, .path = path_, .to = {}, .node = node_, .data = {}});
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
    : disk_(std::make_unique<Disk>()), start_(std::make_unique<Disk>()) {}

MemoryFileSystem::~MemoryFileSystem() = default;

int64_t MemoryFileSystem::operation_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(record_.size());
}

std::string MemoryFileSystem::operation(int64_t index) const {
  const std::lock_guard lock(mutex_);
  const Operation& operation = record_.at(static_cast<size_t>(index));
  std::string text = fmt::format("{} {}", action_name(operation.action), operation.path);
  if (operation.action == Action::rename) text += " " + operation.to;
  if (operation.action == Action::append) text += fmt::format(" {}", operation.data.size());
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

void MemoryFileSystem::perform(Operation operation) {
  const int64_t attempt = attempts_++;
  if (fault_ &&
      (attempt == fault_->operation || (fault_->lasting && attempt > fault_->operation)) &&
      (fault_->kind != ErrorKind::no_space || needs_space(operation.action))) {
    fail(fault_->kind, "cannot {} '{}': {}", action_name(operation.action), operation.path,
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
    perform({.action = Action::append,
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
  if (found != kNone && disk_->is_directory(found)) {
    fail(ErrorKind::io, "cannot write '{}': Is a directory", path);
  }
  if (truncate || found == kNone) {
    perform({.action = Action::create, .path = path, .to = {}, .node = kNone, .data = {}});
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
  if (at == kNone) {
    fail(ErrorKind::not_found, "cannot read '{}': No such file or directory", path);
  }
  if (disk_->is_directory(at)) fail(ErrorKind::io, "cannot read '{}': Is a directory", path);
  return std::make_unique<Bytes>(disk_->data(at));
}

bool MemoryFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return disk_->find(path) != kNone;
}

bool MemoryFileSystem::is_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int64_t at = disk_->find(path);
  return at != kNone && disk_->is_directory(at);
}

int64_t MemoryFileSystem::size_bytes(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int64_t at = disk_->find(path);
  if (at == kNone) {
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
  for (const std::string& part : path_parts(path)) {
    prefix = join_path(prefix, part);
    const int64_t at = disk_->find(prefix);
    if (at == kNone) {
      perform({.action = Action::make_folder, .path = prefix, .to = {}, .node = kNone, .data = {}});
    } else if (!disk_->is_directory(at)) {
      fail(ErrorKind::not_found, "cannot create folder '{}': Not a directory", prefix);
    }
  }
}

void MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  perform({.action = Action::rename, .path = from, .to = to, .node = kNone, .data = {}});
}

void MemoryFileSystem::remove_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  perform({.action = Action::remove_file, .path = path, .to = {}, .node = kNone, .data = {}});
}

void MemoryFileSystem::remove_tree(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto remove = [this](const auto& self, const std::string& at) -> void {
    const bool directory = disk_->is_directory(disk_->find(at));
    if (directory) {
      for (const DirectoryEntry& entry : disk_->list(at)) self(self, join_path(at, entry.name));
    }
    perform({.action = directory ? Action::remove_folder : Action::remove_file,
             .path = at,
             .to = {},
             .node = kNone,
             .data = {}});
  };
  if (disk_->find(path) != kNone) remove(remove, path);
}

void MemoryFileSystem::sync_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  perform({.action = Action::sync_folder, .path = path, .to = {}, .node = kNone, .data = {}});
}

}  // namespace tutti
