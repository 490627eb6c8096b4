#include "tutti/base/testing/memory_disk.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr size_t kSectorBytes = 512;

}  // namespace

std::vector<std::string> disk_path_parts(const std::string& path) {
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

const char* disk_action_name(DiskAction action) {
  switch (action) {
    case DiskAction::create: return "create";
    case DiskAction::make_folder: return "make_folder";
    case DiskAction::append: return "append";
    case DiskAction::sync: return "sync";
    case DiskAction::rename: return "rename";
    case DiskAction::remove_file: return "remove_file";
    case DiskAction::remove_folder: return "remove_folder";
    case DiskAction::sync_folder: return "sync_folder";
  }
  return "";
}

void MemoryDisk::apply(const DiskOperation& operation) {
  const std::string& path = operation.path;
  switch (operation.action) {
    case DiskAction::create: create(path); break;
    case DiskAction::make_folder: add_node(entry_of(path), path, {.directory = true}); break;
    case DiskAction::append: nodes_[index(operation.node)].data += operation.data; break;
    case DiskAction::sync: {
      Node& file = nodes_[index(operation.node)];
      file.synced_bytes = file.data.size();
      file.before_truncation.reset();
      break;
    }
    case DiskAction::rename: rename(path, operation.to); break;
    case DiskAction::remove_file:
      if (node(path, "remove").directory) {
        fail(ErrorKind::io, "cannot remove '{}': Is a directory", path);
      }
      change({{entry_of(path), kNone}});
      break;
    case DiskAction::remove_folder:
      TUTTI_CHECK(node(path, "remove").entries.empty(), "'{}' is not empty", path);
      change({{entry_of(path), kNone}});
      break;
    case DiskAction::sync_folder: sync_folder(path); break;
  }
}

int64_t MemoryDisk::find(const std::string& path) const {
  int64_t at = kRoot;
  for (const std::string& part : disk_path_parts(path)) {
    const Node& folder = nodes_[index(at)];
    const auto entry = folder.entries.find(part);
    if (!folder.directory || entry == folder.entries.end()) return kNone;
    at = entry->second;
  }
  return at;
}

std::vector<DirectoryEntry> MemoryDisk::list(const std::string& path) const {
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

int64_t MemoryDisk::used_bytes(int64_t at) const {
  const Node& node = nodes_[index(at)];
  auto used = static_cast<int64_t>(node.data.size());
  for (const auto& [name, child] : node.entries) used += used_bytes(child);
  return used;
}

void MemoryDisk::make_durable() {
  pending_.clear();
  for (Node& node : nodes_) {
    node.synced_bytes = node.data.size();
    node.before_truncation.reset();
    node.durable_entries = node.entries;
  }
}

void MemoryDisk::lose_power(uint64_t seed) {
  Chance chance(seed);
  for (Node& node : nodes_) node.data = surviving_bytes(node, seed, chance);
  const double likely = chance.uniform();
  std::set<Entry> blocked;  // a change that was lost takes later ones of the same name with it
  for (const Change& change : pending_) {
    bool survives = seed == 1 || (seed > 1 && chance.yes(likely));
    for (const Touch& touch : change) survives = survives && blocked.count(touch.entry) == 0;
    for (const Touch& touch : change) {
      if (survives) {
        set_entry(&Node::durable_entries, touch);
      } else {
        blocked.insert(touch.entry);
      }
    }
  }
  for (Node& node : nodes_) node.entries = node.durable_entries;
  make_durable();
}

size_t MemoryDisk::index(int64_t node) {
  TUTTI_CHECK(node >= 0, "no node");
  return static_cast<size_t>(node);
}

const MemoryDisk::Node& MemoryDisk::node(const std::string& path, const char* action) const {
  const int64_t at = find(path);
  if (at == kNone) {
    fail(ErrorKind::not_found, "cannot {} '{}': No such file or directory", action, path);
  }
  return nodes_[index(at)];
}

MemoryDisk::Entry MemoryDisk::entry_of(const std::string& path) const {
  std::vector<std::string> parts = disk_path_parts(path);
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

void MemoryDisk::set_entry(std::map<std::string, int64_t> Node::*entries, const Touch& touch) {
  auto& names = nodes_[index(touch.entry.first)].*entries;
  if (touch.node == kNone) {
    names.erase(touch.entry.second);
  } else {
    names[touch.entry.second] = touch.node;
  }
}

void MemoryDisk::change(Change change) {
  for (const Touch& touch : change) set_entry(&Node::entries, touch);
  pending_.push_back(std::move(change));
}

void MemoryDisk::add_node(const Entry& entry, const std::string& path, Node node) {
  if (nodes_[index(entry.first)].entries.count(entry.second) > 0) {
    fail(ErrorKind::io, "cannot create '{}': File exists", path);
  }
  nodes_.push_back(std::move(node));
  change({{entry, static_cast<int64_t>(nodes_.size()) - 1}});
}

void MemoryDisk::create(const std::string& path) {
  const int64_t at = find(path);
  if (at == kNone) {
    add_node(entry_of(path), path, {});
    return;
  }
  Node& file = nodes_[index(at)];
  if (file.directory) fail(ErrorKind::io, "cannot write '{}': Is a directory", path);
  if (!file.before_truncation) file.before_truncation = file.data.substr(0, file.synced_bytes);
  file.data.clear();
  file.synced_bytes = 0;
}

void MemoryDisk::rename(const std::string& from, const std::string& to) {
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
  change({{entry_of(from), kNone}, {entry_of(to), source}});
}

void MemoryDisk::sync_folder(const std::string& path) {
  const Node& synced = node(path, "sync folder");
  if (!synced.directory) {
    fail(ErrorKind::not_found, "cannot sync folder '{}': Not a directory", path);
  }
  const int64_t folder = find(path);
  std::set<Entry> wanted;
  std::vector<bool> commit(pending_.size(), false);
  for (size_t i = pending_.size(); i-- > 0;) {
    for (const Touch& touch : pending_[i]) {
      if (touch.entry.first == folder || wanted.count(touch.entry) > 0) commit[i] = true;
    }
    if (!commit[i]) continue;
    for (const Touch& touch : pending_[i]) wanted.insert(touch.entry);
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

std::string MemoryDisk::surviving_bytes(const Node& node, uint64_t seed, Chance& chance) {
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

}  // namespace tutti
