// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti_test_paths.h"

namespace tutti::spec {

inline const std::string kModels = std::string(TUTTI_SOURCE_DIR) + "/recipes/models";

inline ModelConfig preset(const std::string& name) { return load_model_preset(name, kModels); }

inline Recipe parse(const std::string& text, const std::vector<std::string>& overrides = {},
                    bool dp_is_open = false) {
  return parse_recipe(text, "test.yaml", overrides, kModels, dp_is_open);
}

// A valid, resolved recipe of a preset.
inline Recipe recipe_of(const std::string& preset_name,
                        const std::vector<std::string>& overrides = {}, bool dp_is_open = false) {
  return parse("model: " + preset_name + "\n", overrides, dp_is_open);
}

struct Bad {
  const char* text;                  // appended to a valid recipe
  std::vector<std::string> message;  // parts of the error
};

// Reading the recipe `text` throws usage, and the error has every one of `parts`.
inline void expect_refused(const std::string& text, const std::vector<std::string>& parts) {
  try {
    parse(text);
    FAIL() << "accepted: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "missing: " << part << "\n"
          << error.what();
    }
  }
}

}  // namespace tutti::spec
