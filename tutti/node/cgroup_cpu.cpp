#include "tutti/node/cgroup_cpu.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "tutti/base/text.h"

namespace tutti::node {
namespace {

namespace fs = std::filesystem;

// Files of the kernel have no size and cannot be mapped, hence not FileSystem.
std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The number behind `key` in lines "key number"; 0 where there is none.
double number_after(const std::vector<std::string>& lines, std::string_view key) {
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string name;
    double value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return 0;
}

struct Hierarchy {
  std::string mount;  // where it is mounted
  std::string base;   // which of its groups the mount shows as its top
  std::string group;  // that of this process
  bool second = false;
};

bool names_cpu(std::string_view controllers) {
  for (const std::string_view name : split(controllers, ',')) {
    if (name == "cpu") return true;
  }
  return false;
}

// The hierarchies that divide processor time: cpu of version 1, all of version 2.
std::vector<Hierarchy> hierarchies(const std::string& root) {
  std::vector<Hierarchy> out;
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    // 30 23 0:26 /base /mount/point rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
    std::istringstream words(line);
    std::vector<std::string> parts;
    for (std::string word; words >> word;) parts.push_back(word);
    size_t dash = 6;
    while (dash < parts.size() && parts[dash] != "-") ++dash;
    if (dash + 3 >= parts.size()) continue;
    const bool second = parts[dash + 1] == "cgroup2";
    if (!second && (parts[dash + 1] != "cgroup" || !names_cpu(parts[dash + 3]))) continue;
    out.push_back({root + parts[4], parts[3], "", second});
  }
  for (const std::string& line : lines_of(root + "/proc/self/cgroup")) {
    const std::vector<std::string_view> parts = split(line, ':');
    if (parts.size() < 3) continue;
    for (Hierarchy& hierarchy : out) {
      const bool same =
          hierarchy.second ? parts[0] == "0" && parts[1].empty() : names_cpu(parts[1]);
      if (same) hierarchy.group = line.substr(parts[0].size() + parts[1].size() + 2);
    }
  }
  return out;
}

// Quota in cores of one group; 0: none.
double quota_of(const std::string& folder, bool second) {
  double quota = -1;
  double period = 0;
  if (second) {
    std::ifstream(folder + "/cpu.max") >> quota >> period;  // "max 100000" leaves quota at 0
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

void add_group(CgroupCpu& out, const std::string& folder, bool second) {
  const std::vector<std::string> stat = lines_of(folder + "/cpu.stat");
  if (!stat.empty()) out.known = true;
  out.throttled_seconds += second ? number_after(stat, "throttled_usec") * 1e-6
                                  : number_after(stat, "throttled_time") * 1e-9;
  const double quota = quota_of(folder, second);
  if (quota > 0 && (out.quota_cores == 0 || quota < out.quota_cores)) {
    out.quota_cores = quota;
    out.limited_by = folder;
  }
}

}  // namespace

CgroupCpu read_cgroup_cpu(const std::string& root) {
  CgroupCpu out;
  for (const Hierarchy& hierarchy : hierarchies(root)) {
    if (hierarchy.group.empty()) continue;
    fs::path group = hierarchy.group;
    if (hierarchy.base != "/" && starts_with(hierarchy.group, hierarchy.base)) {
      group = "/" + hierarchy.group.substr(hierarchy.base.size());
    }
    for (group = group.lexically_normal(); group.has_relative_path(); group = group.parent_path()) {
      add_group(out, hierarchy.mount + group.string(), hierarchy.second);
    }
    add_group(out, hierarchy.mount, hierarchy.second);
  }
  return out;
}

}  // namespace tutti::node
