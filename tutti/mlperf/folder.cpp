#include "tutti/mlperf/folder.h"

#include <algorithm>
#include <charconv>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

constexpr std::string_view kPrefix = "result_";
constexpr std::string_view kSuffix = ".txt";
constexpr int kDeepestFolder = 12;

bool is_result(const std::string& name) {
  return starts_with(name, kPrefix) && ends_with(name, kSuffix);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void find_system(FileSystem& files, ResultFolder& result) {
  const std::string system = parent_path(result.path);
  const std::string results = parent_path(system);
  if (base_name(results) == "results") {
    result.system_wanted =
        join_path(join_path(parent_path(results), "systems"), base_name(system) + ".json");
    if (files.exists(result.system_wanted)) result.system_file = result.system_wanted;
    return;
  }
  const std::string beside = join_path(system, "system.json");
  if (files.exists(beside)) result.system_file = beside;
}

void walk(FileSystem& files, const std::string& path, int depth,
          std::vector<ResultFolder>& results) {
  ResultFolder result;
  result.path = path;
  result.benchmark = base_name(path);
  std::vector<std::string> folders;
  for (const DirectoryEntry& entry : files.list(path)) {
    const std::string full = join_path(path, entry.name);
    if (entry.is_directory) folders.push_back(full);
    else if (is_result(entry.name)) result.logs.push_back(full);
    else if (entry.name == "scaling.json") result.scaling_file = full;
    else result.strangers.push_back(entry.name);
  }
  if (!result.logs.empty()) {
    std::stable_sort(result.logs.begin(), result.logs.end(),
                     [](const std::string& a, const std::string& b) {
                       return result_number(a) < result_number(b);
                     });
    find_system(files, result);
    results.push_back(std::move(result));
  }
  if (depth == kDeepestFolder) return;
  for (const std::string& folder : folders) walk(files, folder, depth + 1, results);
}

void walk_systems(FileSystem& files, const std::string& path, int depth,
                  std::vector<std::string>& found) {
  const bool tree = files.is_directory(join_path(path, "results"));
  for (const DirectoryEntry& entry : files.list(path)) {
    if (!entry.is_directory) continue;
    const std::string full = join_path(path, entry.name);
    if (tree && entry.name == "systems") {
      for (const DirectoryEntry& file : files.list(full)) {
        if (!file.is_directory && ends_with(file.name, ".json")) {
          found.push_back(join_path(full, file.name));
        }
      }
    } else if (depth < kDeepestFolder) {
      walk_systems(files, full, depth + 1, found);
    }
  }
}

}  // namespace

std::vector<ResultFolder> find_results(FileSystem& files, const std::string& path) {
  const std::string folder = without_slash(path);
  if (!files.is_directory(folder)) {
    fail(ErrorKind::not_found, "no folder '{}'; give a folder with result_0.txt ..., or one above",
         folder);
  }
  std::vector<ResultFolder> results;
  walk(files, folder, 0, results);
  return results;
}

std::vector<std::string> find_system_files(FileSystem& files, const std::string& path) {
  std::vector<std::string> found;
  walk_systems(files, without_slash(path), 0, found);
  return found;
}

int result_number(const std::string& path) {
  const std::string name = base_name(path);
  if (!is_result(name) || name.size() <= kPrefix.size() + kSuffix.size()) return -1;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size() - kSuffix.size();
  int number = -1;
  const auto [at, status] = std::from_chars(begin, end, number);
  return status == std::errc() && at == end ? number : -1;
}

}  // namespace tutti::mlperf
