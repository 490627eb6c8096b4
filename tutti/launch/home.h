// Locations of the recipes and model presets with names, and of the catalog.
//
// Searched in this order: $TUTTI_HOME; share/tutti beside the folder of the program (an
// installation); the folder of the program and those above it (a source tree); the current folder.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::launch {

// The folders above that exist and hold recipes/, in order.
std::vector<std::string> home_folders(FileSystem& files);

// recipes/models of the first home; "recipes/models" when there is none, so that the error for a
// missing preset names a folder.
std::string models_folder(FileSystem& files);

// catalog/ of the first home that has one: chips, prices, benchmarks, published results. Throws
// not_found naming the searched paths.
std::string catalog_folder(FileSystem& files);

// The user's own data: $XDG_DATA_HOME/tutti, else $HOME/.local/share/tutti. Throws not_found when
// neither variable is set. The folder need not exist.
std::string user_data_folder();

// For what can be made again: $XDG_CACHE_HOME/tutti, else $HOME/.cache/tutti; empty when neither
// variable is set. The folder need not exist.
std::string user_cache_folder();

// The file of a recipe given as a path or as a name ("demo" for recipes/demo.yaml of a home).
// Throws not_found listing the known names.
std::string find_recipe(FileSystem& files, const std::string& recipe);

// The names of recipes that a user may call by name, sorted; presets and templates are none.
std::vector<std::string> recipe_names(FileSystem& files);

// What --with and KEY=VALUE set: keys of the recipe files first, so that those of the command line
// win.
std::vector<std::string> all_overrides(FileSystem& files, const std::vector<std::string>& with,
                                       const std::vector<std::string>& overrides);

}  // namespace tutti::launch
