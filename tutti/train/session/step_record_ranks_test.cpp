// What the ranks of a mesh execute is what spec describes (testing/step_record.h).
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "tutti/train/testing/step_record.h"

namespace tutti::train {
namespace {

using testing::described_on_ranks;
using testing::expect_equal;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::mixed_moe_recipe;
using testing::mixtral_recipe;
using testing::Multiset;
using testing::recorded_by_ranks;

// Of several ranks' attention FLOPs are described without windows.
spec::Recipe seeing_all(spec::Recipe recipe) {
  recipe.model.window = 0;
  recipe.model.global_layers.clear();
  recipe.model.window_rope_theta = 0;
  return recipe;
}

TEST(StepRecord, ContextParallelRanksExecuteTheDescription) {
  for (const spec::Recipe& base : {gpt_recipe(), llama_recipe(), seeing_all(testing::qwen_recipe()),
                                   seeing_all(testing::gemma_recipe()), testing::olmo_recipe()}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      for (const spec::Mesh& mesh : {spec::Mesh{.cp = 2}, spec::Mesh{.dp = 2, .cp = 3}}) {
        spec::Recipe recipe = testing::recipe_on(base, mesh);
        recipe.batch.sequence = 12;
        recipe.precision = precision;
        recipe.model.dropout = 0.1;
        for (const auto mode : {spec::RecomputeMode::none, spec::RecomputeMode::full}) {
          recipe.recompute.mode = mode;
          SCOPED_TRACE(fmt::format("{} {}", recipe.model.name, testing::text_of(mesh)));
          const Multiset expected = described_on_ranks(recipe);
          for (const Multiset& actual : recorded_by_ranks(recipe)) expect_equal(actual, expected);
        }
      }
    }
  }
}

// The rows of experts on several ranks are known only when they are there: equality holds for the
// sums over the ranks, of each operation with its other sizes.
TEST(StepRecord, ExpertParallelRanksExecuteTheDescription) {
  struct Sums {
    int64_t count = 0;
    double flops = 0, bytes = 0;
  };
  const auto add = [](const spec::Recipe& recipe, const Multiset& all, int64_t times,
                      std::map<std::string, Sums>& out) {
    for (const auto& [key, count] : all) {
      auto [name, dims, flops, bytes] = key;
      if (name.starts_with("grouped")) dims[1] = 0;
      if (name.starts_with("activation") && dims[1] == recipe.model.moe.expert_ffn) dims[0] = 0;
      if (name == "all_to_all") dims[0] = 0;
      Sums& sums = out[fmt::format("{} {}", name, fmt::join(dims, "x"))];
      sums.count += count * times;
      sums.flops += static_cast<double>(count * times) * flops;
      sums.bytes += static_cast<double>(count * times) * bytes;
    }
  };
  for (spec::Recipe base : {mixtral_recipe(), mixed_moe_recipe(), testing::gpt_oss_recipe()}) {
    base.model.moe.experts = 6;
    for (const spec::Mesh& mesh : {spec::Mesh{.dp = 2, .ep = 2}, spec::Mesh{.dp = 4, .ep = 2},
                                   spec::Mesh{.dp = 2, .cp = 3, .ep = 6}}) {
      spec::Recipe recipe = testing::recipe_on(base, mesh);
      recipe.batch.sequence = 12;
      for (const auto mode : {spec::RecomputeMode::none, spec::RecomputeMode::full}) {
        recipe.recompute.mode = mode;
        SCOPED_TRACE(fmt::format("{} {}", recipe.model.name, testing::text_of(mesh)));
        std::map<std::string, Sums> actual, expected;
        add(recipe, described_on_ranks(recipe), mesh.world(), expected);
        for (const Multiset& one : recorded_by_ranks(recipe)) add(recipe, one, 1, actual);
        for (const auto& [name, sums] : expected) {
          EXPECT_EQ(actual[name].count, sums.count) << name;
          // Of a window in sequences on several ranks the described FLOPs are those without it.
          const bool bound = recipe.model.window > 0 && name.starts_with("attention_block");
          if (bound) {
            EXPECT_LT(actual[name].flops, sums.flops) << name;
            EXPECT_GT(actual[name].flops, 0) << name;
          } else {
            EXPECT_NEAR(actual[name].flops, sums.flops, 1e-9 * sums.flops) << name;
          }
          EXPECT_NEAR(actual[name].bytes, sums.bytes, 1e-9 * sums.bytes) << name;
        }
        EXPECT_EQ(actual.size(), expected.size());
        for (const auto& [name, sums] : actual) {
          EXPECT_TRUE(expected.contains(name)) << "executed " << sums.count << " times: " << name;
        }
      }
    }
  }
}

// Gradients of the norms and sinks that a block has besides: added to by all micro-batches but the
// first, or overwritten where layers take turns in the memory of gradients.
TEST(StepRecord, ZeroRanksExecuteTheDescribedNorms) {
  const auto of_norms = [](Multiset all) {
    std::erase_if(all, [](const auto& one) {
      const std::string& name = std::get<0>(one.first);
      return name.find("rms_norm") == std::string::npos && name.find("sink") == std::string::npos;
    });
    return all;
  };
  for (const spec::Recipe& base :
       {testing::qwen_recipe(), testing::gemma_recipe(), testing::olmo_recipe(),
        testing::gpt_oss_recipe(), testing::deepseek_recipe()}) {
    for (const int64_t zero : {0, 1, 2, 3}) {
      const spec::Recipe recipe = testing::recipe_on(base, {.dp = 2, .zero = zero});
      SCOPED_TRACE(fmt::format("{} zero {}", recipe.model.name, zero));
      const Multiset expected = of_norms(described_on_ranks(recipe));
      EXPECT_FALSE(expected.empty());
      for (const Multiset& actual : recorded_by_ranks(recipe)) {
        expect_equal(of_norms(actual), expected);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::train
