// The tiny models of tests/families as recipes, out of what an import reads in their config.json.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/train/testing/test_support.h"
#include "tutti_test_paths.h"

namespace tutti::train::testing {

// One of each family, where it has the most parts.
inline const std::vector<std::string>& family_names() {
  static const std::vector<std::string> names = {
      "mistral-1", "qwen2-3",   "qwen3-3",       "gemma2-1",      "gemma3-1",     "phi3-2",
      "olmo2-2",   "smollm3-3", "granite-3",     "glm4-1",        "llama-yarn-1", "qwen3-moe-2",
      "olmoe-1",   "gpt-oss-1", "deepseek-v2-1", "deepseek-v2-2", "deepseek-v3-1"};
  return names;
}

inline spec::Recipe family_recipe(const std::string& name) {
  const std::string path =
      std::string(TUTTI_SOURCE_DIR) + "/tests/families/fixtures/" + name + ".json";
  const Json fixture = parse_json(read_file(posix_file_system(), path), path);
  spec::Recipe recipe = gpt_recipe();
  recipe.model = checkpoint::read_hf_config(fixture.at("config"), path).model;
  recipe.model.name = name;
  recipe.model.vocabulary = 101;  // that of the other tests' samples
  return recipe;
}

}  // namespace tutti::train::testing
