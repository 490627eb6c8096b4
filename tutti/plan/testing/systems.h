// Shared by the tests of this folder.
#pragma once

#include <string>
#include <vector>

#include "tutti/catalog/catalog.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti_test_paths.h"

namespace tutti::plan {

inline const catalog::Catalog& shipped() {
  static const catalog::Catalog catalog =
      catalog::load_catalog(posix_file_system(), {std::string(TUTTI_SOURCE_DIR) + "/catalog"});
  return catalog;
}

inline spec::Recipe recipe_of(const std::string& model, const std::vector<std::string>& overrides) {
  return spec::parse_recipe("model: " + model + "\n", "test", overrides,
                            std::string(TUTTI_SOURCE_DIR) + "/recipes/models");
}

}  // namespace tutti::plan
