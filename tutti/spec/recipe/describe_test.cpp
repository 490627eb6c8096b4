#include "tutti/spec/recipe/describe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

// Best of several, in processor time, since other programs share the machine.
double seconds_to_describe(const Recipe& recipe, const Profile& profile) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t begin = std::clock();
    const auto run = describe(recipe, profile);
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    EXPECT_FALSE(run.memory.empty());
  }
  return best;
}

// A sanitizer is slow even where the compiler optimises.
void expect_fast(double seconds) {
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds, 0.010);
#else
  EXPECT_LT(seconds, 0.500);
#endif
}

TEST(Describe, BundlesOneRecipe) {
  const Recipe recipe = recipe_of("gpt2-124m", {"batch.global=8", "batch.micro=2"});
  const auto run = describe(recipe);
  EXPECT_EQ(run.params.count(), 124439808);
  EXPECT_EQ(run.batch.accumulation(), 4);
  EXPECT_EQ(run.schedule.micro_batches, 4);
  EXPECT_EQ(run.program.profile, "tutti");
  ASSERT_EQ(run.memory.size(), 1U);
  EXPECT_EQ(run.memory[0].ranks, 1);
  EXPECT_EQ(run.peak_bytes(), memory_map(recipe).total_bytes());
}

// Llama 3 405B on 16,384 GPUs (Llama Team 2024, table 4: tp 8, pp 16, dp 128, 8,192 tokens).
TEST(Describe, Llama405BOn16384Ranks) {
  const Recipe recipe =
      recipe_of("llama3.1-405b", {"parallel={tp: 8, pp: 16, dp: 128, zero: 2}", "batch.global=2048",
                                  "batch.micro=1", "batch.sequence=8192"});
  EXPECT_EQ(recipe.parallel.world(), 16384);
  const auto run = describe(recipe);
  int64_t ranks = 0;
  for (const RankClass& one : run.memory) ranks += one.ranks;
  EXPECT_EQ(ranks, 16384);
  EXPECT_EQ(&run.rank_class(0), &run.memory.front());
  EXPECT_EQ(&run.rank_class(16383), &run.memory.back());
  // Layers of all stages: 126.
  int64_t layers = 0;
  for (const StageProgram& stage : run.program.stages) {
    for (const LayerRun& part : stage.runs) {
      if (run.program.kinds[part.kind].kind.starts_with("block")) layers += part.repeats;
    }
  }
  EXPECT_EQ(layers, 126);
  expect_fast(seconds_to_describe(recipe, tutti_profile()));
  expect_fast(seconds_to_describe(recipe, find_profile("megatron-te")));
}

TEST(Describe, ContextParallelLayoutOf405B) {
  const Recipe recipe =
      recipe_of("llama3.1-405b", {"parallel={tp: 8, cp: 16, pp: 16, dp: 8, zero: 2}",
                                  "batch.global=128", "batch.micro=1", "batch.sequence=131072"});
  EXPECT_EQ(recipe.parallel.world(), 16384);
  expect_fast(seconds_to_describe(recipe, tutti_profile()));
}

// 200 trillion parameters on 331,776 ranks.
TEST(Describe, MixtureOf200TrillionParameters) {
  const Recipe recipe = parse(R"(
model:
  layers: 120
  hidden: 32768
  heads: 256
  kv_heads: 8
  ffn: 131072
  vocabulary: 256k
  context: 8192
  norm: rms
  activation: swiglu
  positions: rope
  linear_bias: false
  tied_embeddings: false
  moe: {experts: 512, top_k: 8, expert_ffn: 33k, shared_experts: 1, first_dense_layers: 3}
parallel: {tp: 8, pp: 24, vpp: 5, dp: 1728, ep: 64, zero: 1}
batch: {global: 82944, micro: 1, sequence: 8192}
)");
  EXPECT_EQ(recipe.parallel.world(), 331776);
  const auto run = describe(recipe);
  EXPECT_NEAR(static_cast<double>(run.params.count()), 200e12, 10e12);
  EXPECT_GT(run.peak_bytes(), 0);
  expect_fast(seconds_to_describe(recipe, tutti_profile()));
}

}  // namespace
}  // namespace tutti::spec
