// Latent attention and the routers of the DeepSeek family as recipes say them: keys, refusals, what
// is kept and cached.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {
namespace {

const std::string kLatentRecipe =
    "model: {layers: 3, hidden: 24, heads: 4, ffn: 40, vocabulary: 64, context: 32, norm: rms, "
    "activation: swiglu, positions: rope, linear_bias: false, norm_bias: false, "
    "tied_embeddings: false, attention: latent, latent: {query_rank: 10, key_value_rank: 9, "
    "nope_head_dim: 5, rope_head_dim: 4, value_head_dim: 7}}\n"
    "precision: bf16\nbatch: {global: 2, micro: 2, sequence: 8}\ntrain: {steps: 1}\n";

Recipe latent_with(const std::string& keys, const std::string& more = "") {
  std::string text = kLatentRecipe + more;
  text.replace(text.find("norm: rms"), 0, keys);
  return parse_recipe(text, "recipe", {}, "");
}

std::string latent_refusal(const std::string& keys, const std::string& more = "",
                           int64_t ranks = 1) {
  try {
    check_executable(latent_with(keys, more), ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const char* const kRouter =
    "moe: {experts: 12, top_k: 3, expert_ffn: 8, shared_experts: 1, first_dense_layers: 1, "
    "router_bias: true, scores: sigmoid, groups: 4, top_groups: 2, group_best: 2, "
    "weight_factor: 2.5}, ";

TEST(LatentModel, IsReadAsWritten) {
  Recipe recipe = latent_with(kRouter);
  EXPECT_EQ(recipe.model.moe.scores, RouterScores::sigmoid);
  EXPECT_EQ(recipe.model.moe.top_groups, 2);
  EXPECT_EQ(recipe.model.moe.weight_factor, 2.5);
  recipe.model.latent.norm_epsilon = 1e-4;
  EXPECT_EQ(parse_recipe(to_yaml(recipe), "again", {}, "").model, recipe.model);
  const std::string plain = to_yaml(latent_with("").model);
  for (const char* key : {"scores", "groups", "group_best", "weight_factor"}) {
    EXPECT_EQ(plain.find(key), std::string::npos) << key;
  }
  EXPECT_EQ(latent_refusal(kRouter), "");
}

TEST(LatentModel, HasItsParameters) {
  const ParamTable table = param_table(latent_with("").model, 1);
  const int64_t attention =
      10 * 24 + 10 + 4 * 9 * 10 + (9 + 4) * 24 + 9 + 4 * (5 + 7) * 9 + 24 * 28;
  EXPECT_EQ(table.count(), 2 * 64 * 24 + 24 + 3 * (2 * 24 + attention + 3 * 24 * 40));
}

// Columns that generation caches, and that a training step saves for the backward pass.
TEST(LatentModel, KeepsWhatIsStated) {
  const Recipe recipe = latent_with("");
  EXPECT_EQ(cached_columns(recipe.model), 9 + 4);
  EXPECT_EQ(key_dim(recipe.model), 9);
  EXPECT_EQ(value_dim(recipe.model), 7);
  EXPECT_EQ(rotated_dims(recipe.model), 4);
  const int64_t n = 16;
  const MemoryMap map = memory_map(recipe);
  const SlotPlan& block = map.arena("activations").slot("block");
  EXPECT_EQ(block.tensor("attention.qkv").bytes, n * 4 * (2 * 9 + 7) * 2);
  EXPECT_EQ(block.tensor("attention.kv_down").bytes, n * 13 * 2);
  EXPECT_EQ(block.tensor("attention.kv_norm.y").bytes, n * 13 * 2);
  EXPECT_EQ(block.tensor("attention.query_down").bytes, n * 10 * 2);
  EXPECT_EQ(block.tensor("attention.out").bytes, n * 4 * 7 * 2);
}

TEST(LatentModel, IsRefusedByNameWhereItCannotRun) {
  EXPECT_EQ(latent_refusal(""), "");
  EXPECT_EQ(latent_refusal("attention_scale: 0.2, "), "");
  const auto refused = [](const std::string& said, const std::string& wanted) {
    EXPECT_NE(said.find(wanted), std::string::npos) << said;
  };
  refused(latent_refusal("", "device: cuda\n"), "attention: latent with device: cuda");
  refused(latent_refusal("", "parallel: {cp: 2}\n", 2), "latent with parallel.cp: 2");
  refused(latent_refusal("", "parallel: {pp: 3, schedule: zero-bubble}\n", 3), "zero-bubble");
  refused(latent_refusal("attention_softcap: 3, "), "attention_softcap");
  refused(latent_refusal("query_key_norm: head, "), "query_key_norm");
  refused(latent_refusal("window: 3, "), "window");
  refused(latent_refusal("kv_heads: 2, "), "model.kv_heads: 2");
  refused(latent_refusal("biases: [qkv], "), "model.biases: qkv");
}

TEST(LatentModel, RoutersAreRefusedByName) {
  const auto refused = [](const std::string& keys, const std::string& wanted) {
    const std::string said =
        latent_refusal("moe: {experts: 12, top_k: 3, expert_ffn: 8, " + keys + "}, ");
    EXPECT_NE(said.find(wanted), std::string::npos) << said;
  };
  refused("groups: 5", "model.moe.groups: 5 does not divide model.moe.experts 12");
  refused("groups: 4, top_groups: 5", "model.moe.top_groups: 5");
  refused("groups: 6, top_groups: 1", "model.moe.top_k: 3");
  refused("groups: 4, top_groups: 2, group_best: 4", "model.moe.group_best: 4");
  refused("weight_factor: 0", "model.moe.weight_factor: 0");
  refused("scores: sigmoid, z_loss: 0.1", "model.moe.z_loss: 0.1");
  refused("scores: cosine", "sigmoid");
}

}  // namespace
}  // namespace tutti::spec
