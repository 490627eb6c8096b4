#include "tutti/launch/home.h"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::launch {
namespace {

constexpr const char* kRecipes = "recipes";
constexpr const char* kSuffix = ".yaml";

// Folder of the running program; empty when the system does not say.
std::string program_folder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : program.parent_path().string();
}

}  // namespace

std::vector<std::string> home_folders(FileSystem& files) {
  std::vector<std::string> candidates;
  if (const char* home = std::getenv("TUTTI_HOME"); home != nullptr && *home != '\0') {
    candidates.emplace_back(home);
  }
  const std::string program = program_folder();
  if (!program.empty()) {
    candidates.push_back(join_path(parent_path(program), "share/tutti"));
    std::string folder = program;
    for (; folder != "/" && folder != "."; folder = parent_path(folder)) {
      candidates.push_back(folder);
    }
  }
  candidates.emplace_back(".");
  std::vector<std::string> homes;
  for (const std::string& candidate : candidates) {
    if (files.is_directory(join_path(candidate, kRecipes))) homes.push_back(candidate);
  }
  return homes;
}

std::vector<std::string> recipe_names(FileSystem& files) {
  std::set<std::string> names;
  for (const std::string& home : home_folders(files)) {
    for (const DirectoryEntry& entry : files.list(join_path(home, kRecipes))) {
      if (!entry.is_directory && ends_with(entry.name, kSuffix)) {
        names.insert(entry.name.substr(0, entry.name.size() - std::string_view(kSuffix).size()));
      }
    }
  }
  return {names.begin(), names.end()};
}

std::string models_folder(FileSystem& files) {
  for (const std::string& home : home_folders(files)) {
    std::string folder = join_path(home, "recipes/models");
    if (files.is_directory(folder)) return folder;
  }
  return "recipes/models";
}

std::string catalog_folder(FileSystem& files) {
  for (const std::string& home : home_folders(files)) {
    std::string folder = join_path(home, "catalog");
    if (files.is_directory(folder)) return folder;
  }
  fail(ErrorKind::not_found,
       "no catalog/ next to recipes/; it is installed into share/tutti, or set TUTTI_HOME to a "
       "folder "
       "that holds both");
}

std::string user_data_folder() {
  if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data != '\0') {
    return join_path(data, "tutti");
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return join_path(home, ".local/share/tutti");
  }
  fail(ErrorKind::not_found, "no folder for your data: set HOME or XDG_DATA_HOME");
}

std::string user_cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return join_path(cache, "tutti");
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return join_path(home, ".cache/tutti");
  }
  return {};
}

std::string find_recipe(FileSystem& files, const std::string& recipe) {
  if (files.exists(recipe) && !files.is_directory(recipe)) return recipe;
  const bool is_name = recipe[0] != '/' && !ends_with(recipe, kSuffix);
  if (is_name) {
    for (const std::string& home : home_folders(files)) {
      std::string path = join_path(join_path(home, kRecipes), recipe + kSuffix);
      if (files.exists(path)) return path;
    }
  }
  if (files.is_directory(recipe)) {
    fail(ErrorKind::not_found,
         "'{}' is a folder without recipe.yaml, so it is not a run; give a run folder, a recipe "
         "file or a recipe's name",
         recipe);
  }
  const std::vector<std::string> names = recipe_names(files);
  const std::string known = names.empty() ? "none" : join(names, ", ");
  const std::string suggestion = nearest_word(recipe, names);
  fail(ErrorKind::not_found, "no recipe '{}'{}; give a file, a run folder or a name (known: {})",
       recipe, suggestion.empty() ? "" : "; did you mean '" + suggestion + "'?", known);
}

std::vector<std::string> all_overrides(FileSystem& files, const std::vector<std::string>& with,
                                       const std::vector<std::string>& overrides) {
  std::vector<std::string> all;
  for (const std::string& path : with) {
    const std::string file = find_recipe(files, path);
    const auto keys = spec::read_overrides(read_file(files, file), file);
    all.insert(all.end(), keys.begin(), keys.end());
  }
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

}  // namespace tutti::launch
