// Recomputation changes memory and work, and not one bit of any gradient.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using spec::Recompute;
using spec::RecomputeMode;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::mixed_moe_recipe;
using testing::RandomBatches;
using testing::randomize;

// Full, and every set of parts.
std::vector<Recompute> every_recompute() {
  std::vector<Recompute> all = {{RecomputeMode::full, 0, 0}};
  for (spec::Parts parts = 0; parts < 32; ++parts) {
    all.push_back({RecomputeMode::selective, parts, 0});
  }
  return all;
}

struct Pass {
  double loss = 0;
  std::vector<char> gradients;
  int64_t activation_bytes = 0;
};

Pass run(const spec::Recipe& recipe) {
  Trainer trainer(recipe);
  trainer.initialize();
  randomize(trainer, 11, 0.15F);
  RandomBatches batches(recipe, 3);
  Pass pass;
  pass.loss = trainer.gradients(batches.source());
  const engine::Arena& gradients = trainer.memory().arena("gradients");
  const char* begin = static_cast<const char*>(gradients.data());
  pass.gradients.assign(begin, begin + gradients.bytes());
  pass.activation_bytes = trainer.memory().arena("activations").bytes();
  return pass;
}

void expect_same_bits(spec::Recipe recipe) {
  recipe.model.layers = 3;
  recipe.threads = 1;
  recipe.recompute = {};
  const Pass plain = run(recipe);
  for (Recompute recompute : every_recompute()) {
    for (const int64_t layers : {0, 2}) {
      recompute.layers = layers;
      recipe.recompute = recompute;
      SCOPED_TRACE(spec::to_yaml(recipe));
      const Pass again = run(recipe);
      ASSERT_EQ(again.loss, plain.loss);
      ASSERT_EQ(again.gradients.size(), plain.gradients.size());
      ASSERT_EQ(std::memcmp(again.gradients.data(), plain.gradients.data(), plain.gradients.size()),
                0);
      ASSERT_LT(again.activation_bytes, plain.activation_bytes);
    }
  }
}

TEST(Recompute, SameBitsForGpt) { expect_same_bits(gpt_recipe()); }

TEST(Recompute, SameBitsForLlama) { expect_same_bits(llama_recipe()); }

TEST(Recompute, SameBitsWithExperts) {
  spec::Recipe recipe = mixed_moe_recipe();
  recipe.model.moe.first_dense_layers = 0;  // a single layer of a kind would save nothing
  expect_same_bits(recipe);
}

TEST(Recompute, SameBitsWithLatentAttention) {
  expect_same_bits(testing::latent_recipe());
  spec::Recipe recipe = testing::plain_latent_recipe();
  recipe.precision = spec::Precision::bf16;
  recipe.batch = {6, 2, 7};
  expect_same_bits(recipe);
}

TEST(Recompute, SameBitsInBf16) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.precision = spec::Precision::bf16;
    expect_same_bits(recipe);
  }
}

TEST(Recompute, SameBitsWithDropoutAndAccumulation) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.precision = spec::Precision::bf16;
    recipe.model.dropout = 0.2;
    recipe.batch = {6, 2, 7};
    expect_same_bits(recipe);
  }
}

// Operands are quantized again, from the same numbers.
TEST(Recompute, SameBitsBelowSixteen) {
  spec::Recipe recipe = llama_recipe();
  recipe.batch = {6, 2, 7};
  for (const auto precision : {spec::Precision::fp8, spec::Precision::fp4}) {
    recipe.precision = precision;
    recipe.narrow.stochastic_gradients = precision == spec::Precision::fp4;
    expect_same_bits(recipe);
  }
}

TEST(Recompute, SameBitsWithAdapters) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.precision = spec::Precision::bf16;
    recipe.lora = {4, 8, 0.2, {"qkv", "output", "mlp"}};
    expect_same_bits(recipe);
  }
}

}  // namespace
}  // namespace tutti::train
