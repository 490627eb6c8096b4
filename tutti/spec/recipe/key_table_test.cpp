#include "tutti/spec/recipe/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tutti/base/flat_yaml.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

const RecipeKey& key_at(const std::vector<RecipeKey>& keys, const std::string& path) {
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const RecipeKey& key) { return key.path == path; });
  EXPECT_NE(found, keys.end()) << path;
  return *found;
}

TEST(RecipeKeys, ListsEveryKeyThatIsWritten) {
  std::set<std::string> listed;
  for (const RecipeKey& key : recipe_key_table()) {
    EXPECT_TRUE(listed.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.help.empty()) << key.path;
  }
  const Recipe recipe = parse(
      "model: deepseek-v3\nprecision: fp8\ntrain: {target_loss: 2}\n"
      "data: {train: a, validation: b}\n");
  size_t written = 0;
  for (const auto& [path, value] : flatten_yaml(to_yaml(recipe))) {
    EXPECT_EQ(listed.count(path), 1U) << path;
    ++written;
  }
  EXPECT_GT(written, 100U);
}

TEST(RecipeKeys, SayWhatIsAccepted) {
  const std::vector<RecipeKey> keys = recipe_key_table();
  EXPECT_EQ(accepted_text(key_at(keys, "batch.global")), "1 or more");
  EXPECT_EQ(accepted_text(key_at(keys, "parallel.zero")), "0 to 3");
  EXPECT_EQ(accepted_text(key_at(keys, "recompute")), "none, selective, full, or mapping");
  EXPECT_EQ(accepted_text(key_at(keys, "recompute.layers")), "1 or more, all");
  EXPECT_EQ(key_at(keys, "optimizer.learning_rate").usual, "0.0006");
  EXPECT_EQ(key_at(keys, "model.head_dim").usual, "hidden / heads");
}

TEST(RecipeKeys, SchemaNestsKeysAsRecipesDo) {
  const Json schema = recipe_schema();
  EXPECT_FALSE(schema["additionalProperties"].get<bool>());
  const Json& properties = schema["properties"];
  EXPECT_EQ(properties["batch"]["properties"]["global"]["anyOf"][0]["minimum"], 1);
  EXPECT_EQ(properties["recompute"]["anyOf"][0]["properties"]["mode"]["enum"],
            Json({"none", "selective", "full"}));
  EXPECT_EQ(properties["model"]["anyOf"][0]["properties"]["moe"]["properties"].size(), 17U);
  EXPECT_EQ(properties["distill"]["properties"]["model"]["$ref"], "#/properties/model");
}

TEST(RecipeKeys, MarkdownHasATablePerSection) {
  const std::string text = recipe_keys_markdown();
  EXPECT_NE(text.find("## `optimizer`\n\nAdamW. Accepted: mapping.\n"), std::string::npos);
  EXPECT_NE(text.find("| `device` | cpu, cuda | cpu | where it runs |\n"), std::string::npos);
}

}  // namespace
}  // namespace tutti::spec
