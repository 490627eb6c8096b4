#include "tutti/cli/train/trusted_recipe.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/launch/home.h"
#include "tutti/launch/prepared_data.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

std::string trusted_recipe(FileSystem& files, const std::string& path) {
  const std::string file = files.resolve(absolute(path));
  for (const std::string& home : launch::home_folders(files)) {
    const std::string recipes = files.resolve(absolute(join_path(home, "recipes")));
    // That of the current folder is the caller's own.
    if (home == "." || !starts_with(file, recipes + "/")) continue;
    try {
      spec::Recipe recipe =
          spec::parse_recipe(read_file(files, path), path, {}, launch::models_folder(files));
      launch::locate_source(files, recipe, path);
      return spec::to_yaml(recipe);
    } catch (const Error&) {
      break;  // it needs keys of the caller's
    }
  }
  return spec::to_yaml(spec::Recipe());
}

}  // namespace tutti::cli
