#include "tutti/spec/model/params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

struct PublishedCount {
  const char* preset;
  int64_t count;
};

class PublishedCounts : public testing::TestWithParam<PublishedCount> {};

TEST_P(PublishedCounts, EqualParamTable) {
  const ModelConfig model = preset(GetParam().preset);
  EXPECT_EQ(model.name, GetParam().preset);
  EXPECT_EQ(param_table(model).count(), GetParam().count);
}

INSTANTIATE_TEST_SUITE_P(
    Presets, PublishedCounts,
    testing::Values(
        PublishedCount{"gpt2-124m", 124439808}, PublishedCount{"gpt2-350m", 354823168},
        PublishedCount{"gpt2-774m", 774030080}, PublishedCount{"gpt2-1558m", 1557611200},
        PublishedCount{"llama2-70b", 68976648192}, PublishedCount{"llama3.1-8b", 8030261248},
        PublishedCount{"llama3.1-70b", 70553706496}, PublishedCount{"llama3.1-405b", 405853388800},
        PublishedCount{"mixtral-8x7b", 46702792704}, PublishedCount{"gpt-oss-20b", 20914757184},
        PublishedCount{"deepseek-v2-lite", 15706484224},
        PublishedCount{"deepseek-v2", 235741434880}, PublishedCount{"deepseek-v3", 671026419200}));

TEST(Params, Gpt3EqualsItsFormulaAndThePublishedRounding) {
  const int64_t layers = 96;
  const int64_t hidden = 12288;
  const int64_t formula =
      layers * (12 * hidden * hidden + 13 * hidden) + 51200 * hidden + 2048 * hidden + 2 * hidden;
  const int64_t count = param_table(preset("gpt3-175b")).count();
  EXPECT_EQ(count, formula);
  EXPECT_EQ(count, 174615846912);
  EXPECT_NEAR(static_cast<double>(count) / 1e9, 175, 0.5);
}

// DeepSeek-V3's README_WEIGHTS: 36.7 B active parameters with 0.9 B of embedding; technical report:
// 37 B; 11.5 B parameters of its own in the multi-token prediction module.
TEST(Params, DeepSeekActiveAndPredictionParameters) {
  const ModelConfig model = preset("deepseek-v3");
  EXPECT_NEAR(static_cast<double>(active_count(model)) / 1e9, 37, 0.6);
  EXPECT_NEAR(static_cast<double>(param_table(model).prediction_count()) / 1e9, 11.5, 0.15);
}

TEST(Params, MixtralActiveParameters) {
  // Jiang et al. 2024: 13 B of 47 B parameters are used per token.
  EXPECT_NEAR(static_cast<double>(active_count(preset("mixtral-8x7b"))) / 1e9, 13, 0.2);
}

// Their model cards: 30.5 B with 3.3 B active, 235 B with 22 B; gpt-oss: 116.8 B.
TEST(Params, ExpertsOfQwenAndGptOss) {
  const auto billions = [](int64_t count) { return static_cast<double>(count) / 1e9; };
  EXPECT_NEAR(billions(param_table(preset("qwen3-30b-a3b")).count()), 30.5, 0.1);
  EXPECT_NEAR(billions(active_count(preset("qwen3-30b-a3b"))), 3.3, 0.1);
  EXPECT_NEAR(billions(param_table(preset("qwen3-235b-a22b")).count()), 235, 0.5);
  EXPECT_NEAR(billions(active_count(preset("qwen3-235b-a22b"))), 22, 0.3);
  EXPECT_NEAR(billions(param_table(preset("gpt-oss-120b")).count()), 116.8, 0.3);
}

TEST(Params, ActiveCountOfADenseModelIsItsCount) {
  const ModelConfig model = preset("llama3.1-8b");
  EXPECT_EQ(active_count(model), param_table(model).count());
}

TEST(ParamLayout, IsAlignedContiguousAndComplete) {
  for (const char* name : {"gpt2-124m", "llama3.1-8b", "mixtral-8x7b"}) {
    const ParamTable table = param_table(preset(name));
    const ParamLayout layout = param_layout(table);
    int64_t expected_offset = 0;
    int64_t logical = 0;
    std::set<std::string> names;
    for (const PlacedParam& placed : layout.params) {
      EXPECT_EQ(placed.element_offset, expected_offset) << placed.name;
      EXPECT_EQ(placed.element_offset % kParamAlignment, 0);
      EXPECT_TRUE(names.insert(placed.name).second) << placed.name << " twice";
      expected_offset += align_elements(placed.param.padded_count());
      logical += placed.param.count();
    }
    EXPECT_EQ(layout.elements, expected_offset);
    EXPECT_EQ(logical, table.count());
    EXPECT_GE(layout.elements, table.count());
  }
}

TEST(ParamLayout, FollowsTheCompletionOfGradients) {
  const ParamLayout layout = param_layout(param_table(preset("gpt2-124m")));
  const auto offset = [&](const char* name) { return layout.find(name).element_offset; };
  EXPECT_LT(offset("final_norm.weight"), offset("blocks.11.mlp.down.weight"));
  EXPECT_LT(offset("blocks.11.mlp.down.weight"), offset("blocks.11.attention.qkv.weight"));
  EXPECT_LT(offset("blocks.11.norm1.weight"), offset("blocks.10.mlp.down.weight"));
  EXPECT_LT(offset("blocks.0.norm1.weight"), offset("embedding.token.weight"));
  EXPECT_EQ(layout.params.size(), 2U + 12U * 12U + 2U);
  EXPECT_EQ(layout.find("embedding.token.weight").param.padded_rows, 50304);
}

TEST(Params, InitialisationAndDecay) {
  const ParamLayout layout = param_layout(param_table(preset("gpt2-124m")));
  for (const PlacedParam& placed : layout.params) {
    EXPECT_EQ(placed.param.decay, placed.param.shape.size() > 1) << placed.name;
    EXPECT_EQ(placed.param.init == Init::normal, placed.param.shape.size() > 1) << placed.name;
  }
  EXPECT_DOUBLE_EQ(layout.find("blocks.3.mlp.down.weight").param.init_std, 0.02 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(layout.find("blocks.3.mlp.up.weight").param.init_std, 0.02);
  EXPECT_EQ(layout.find("blocks.3.norm1.weight").param.init, Init::ones);
}

// Over tp and ep, the shards of what is split add up to the whole; what is not split is equal
// everywhere.
TEST(Params, ShardsAddUpToTheWhole) {
  for (const char* name : {"gpt2-1558m", "llama3.1-70b", "mixtral-8x7b", "deepseek-v3"}) {
    Mesh mesh;
    mesh.tp = std::string(name) == "gpt2-1558m" ? 5 : 8;
    mesh.dp = 8;
    mesh.ep = 8;
    for (const ParamGroup& group : param_table(preset(name), 64 * mesh.tp).groups) {
      for (const Param& param : group.params) {
        const int64_t ways = (param.shard_dim >= 0 ? mesh.tp : 1) * (param.expert ? mesh.ep : 1);
        EXPECT_EQ(param.local_count(mesh) * ways, param.padded_count()) << name << param.name;
      }
    }
  }
}

TEST(Params, KeyValueHeadsAreReplicatedBeyondTheirNumber) {
  const ModelConfig model = preset("llama3.1-8b");  // 32 query and 8 key/value heads of 128
  Mesh mesh;
  mesh.tp = 16;
  for (const ParamGroup& group : param_table(model).groups) {
    for (const Param& param : group.params) {
      if (param.name != "attention.qkv.weight") continue;
      EXPECT_EQ(param.local_count(mesh), (2 + 2 * 1) * 128 * model.hidden);
    }
  }
}

}  // namespace
}  // namespace tutti::spec
