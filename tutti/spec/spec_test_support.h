// What the tests of this folder share.
#pragma once

#include <string>
#include <vector>

#include "tutti/spec/recipe.h"

namespace tutti::spec {

inline const std::string kModels = std::string(TUTTI_SOURCE_DIR) + "/recipes/models";

inline ModelConfig preset(const std::string& name) { return load_model_preset(name, kModels); }

inline Recipe parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(text, "test.yaml", overrides, kModels);
}

// A valid, resolved recipe of a preset.
inline Recipe recipe_of(const std::string& preset_name,
                        const std::vector<std::string>& overrides = {}) {
  return parse("model: " + preset_name + "\n", overrides);
}

}  // namespace tutti::spec
