// The disk of MemoryFileSystem, and what of it survives a loss of power (memory_file.h states the
// model).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/file.h"

namespace tutti {

class Chance;

enum class DiskAction {
  create,
  make_folder,
  append,
  sync,
  rename,
  remove_file,
  remove_folder,
  sync_folder
};
const char* disk_action_name(DiskAction action);

struct DiskOperation {
  DiskAction action = DiskAction::create;
  std::string path;
  std::string to;     // rename
  int64_t node = -1;  // append, sync
  std::string data;   // append
};

// The names of a path without empty ones and '.'; throws unsupported where it has '..'.
std::vector<std::string> disk_path_parts(const std::string& path);

// A value: nodes (files and folders) refer to each other by index, so that copies are independent.
class MemoryDisk {
 public:
  static constexpr int64_t kRoot = 0;
  static constexpr int64_t kNone = -1;

  MemoryDisk() { nodes_.push_back({.directory = true}); }

  void apply(const DiskOperation& operation);

  // kNone when there is nothing of that name.
  int64_t find(const std::string& path) const;
  bool is_directory(int64_t at) const { return nodes_[index(at)].directory; }
  const std::string& data(int64_t at) const { return nodes_[index(at)].data; }
  std::string& data(int64_t at) { return nodes_[index(at)].data; }

  std::vector<DirectoryEntry> list(const std::string& path) const;
  // Bytes of all files that have a name.
  int64_t used_bytes(int64_t at = kRoot) const;

  void make_durable();  // all that there is
  void lose_power(uint64_t seed);

 private:
  using Entry = std::pair<int64_t, std::string>;  // folder and name in it
  struct Touch {
    Entry entry;
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

  static size_t index(int64_t node);
  const Node& node(const std::string& path, const char* action) const;

  // Where the name `path` is or would be.
  Entry entry_of(const std::string& path) const;
  void set_entry(std::map<std::string, int64_t> Node::*entries, const Touch& touch);
  void change(Change change);
  void add_node(const Entry& entry, const std::string& path, Node node);
  void create(const std::string& path);
  void rename(const std::string& from, const std::string& to);

  // Commits the changes in this folder, and earlier ones that they build on.
  void sync_folder(const std::string& path);
  static std::string surviving_bytes(const Node& node, uint64_t seed, Chance& chance);

  std::vector<Node> nodes_;
  std::vector<Change> pending_;  // not yet durable, oldest first
};

}  // namespace tutti
