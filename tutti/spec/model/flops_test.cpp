#include "tutti/spec/model/flops.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

// Megatron-Bridge's performance tables, FLOPs per token at a sequence of 8,192.
TEST(Flops, PublishedLlamaFigures) {
  const auto expect = [](const std::string& name, double published) {
    EXPECT_NEAR(model_flops_per_token(preset(name), 8192) / published, 1, 1e-3) << name;
  };
  expect("llama3.1-8b", 5.147e10);
  expect("llama3.1-70b", 4.492e11);
  expect("llama3.1-405b", 2.524e12);
}

// 72 L h^2 (1 + s/6h + V/12Lh) and 96 L h^2 (1 + s/6h + V/16Lh), for GPT.
TEST(Flops, ConventionsEqualTheirFormulas) {
  for (const char* name : {"gpt2-124m", "gpt2-1558m", "gpt3-175b"}) {
    const ModelConfig model = preset(name);
    const auto layers = static_cast<double>(model.layers);
    const auto h = static_cast<double>(model.hidden);
    const auto v = static_cast<double>(model.vocabulary);
    for (const int64_t sequence : {128, 1024, 2048}) {
      const auto s = static_cast<double>(sequence);
      EXPECT_DOUBLE_EQ(flops_per_token(model, sequence, FlopConvention::square),
                       72 * layers * h * h * (1 + s / (6 * h) + v / (12 * layers * h)));
      EXPECT_DOUBLE_EQ(flops_per_token(model, sequence, FlopConvention::hardware),
                       96 * layers * h * h * (1 + s / (6 * h) + v / (16 * layers * h)));
    }
  }
}

// MegaScale's Megatron rows: 1.077e12 per token in the square convention; 175B: 12288 wide, 2,048.
TEST(Flops, Gpt3Square) {
  EXPECT_NEAR(flops_per_token(preset("gpt3-175b"), 2048, FlopConvention::square) / 1.077e12, 1,
              1e-2);
}

TEST(Flops, OfAStep) {
  const Recipe recipe = recipe_of("gpt2-124m", {"batch.global=4", "batch.sequence=64"});
  EXPECT_DOUBLE_EQ(model_flops_per_step(recipe), 256 * model_flops_per_token(recipe.model, 64));
  // 6 * (12 L h^2 + h V) + 6 L h s
  EXPECT_DOUBLE_EQ(model_flops_per_token(recipe.model, 64),
                   6.0 * (12.0 * 12 * 768 * 768 + 768.0 * 50257) + 6.0 * 12 * 768 * 64);
}

// DeepSeek-V3: 37 B active parameters, so near 6 * 36.6 B matrix parameters, plus the prediction
// module and attention: about 250 GFLOP at 4,096 tokens.
TEST(Flops, DeepSeek) {
  ModelConfig model = preset("deepseek-v3");
  model.prediction_layers = 0;
  const double flops = model_flops_per_token(model, 4096);
  const double attention = 3.0 * 61 * 128 * (192 + 128) * 4096;
  EXPECT_NEAR((flops - attention) / 6 / 1e9, 36.6, 0.2);
}

TEST(Flops, PackedDocumentsCountByTheirLengths) {
  for (const char* name : {"gpt2-124m", "llama3.1-8b"}) {
    for (const int64_t rank : {0, 8}) {
      Recipe recipe;
      recipe.model = preset(name);
      recipe.lora = {.rank = rank, .targets = {"output"}};
      // One document per sequence gives the usual count; halves need half the attention.
      recipe.batch.sequence = 1024;
      const double whole = 8 * 1024 * model_flops_per_token(recipe);
      EXPECT_NEAR(model_flops(recipe, 8 * 1024, 8 * 1024 * 1024), whole, 1e-12 * whole);
      recipe.batch.sequence = 512;
      const double halves = 16 * 512 * model_flops_per_token(recipe);
      EXPECT_NEAR(model_flops(recipe, 8 * 1024, 16 * 512 * 512), halves, 1e-12 * halves);
    }
  }
}

}  // namespace
}  // namespace tutti::spec
