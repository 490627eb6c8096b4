#include "tutti/train/tasks/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::adapted;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::randomize;

SamplingOptions options(double temperature, int64_t top_k, double top_p) {
  SamplingOptions out;
  out.temperature = temperature;
  out.top_k = top_k;
  out.top_p = top_p;
  return out;
}

TEST(SampleToken, ZeroTemperatureTakesTheLargest) {
  EXPECT_EQ(sample_token({0.1F, 3.0F, 2.9F, 3.0F}, options(0, 0, 1), 0.99), 1);
}

TEST(SampleToken, FollowsTheProbabilities) {
  // exp: 1, 2, 1 of 4; sorted by probability: token 1, then 0, then 2.
  const std::vector<float> logits = {0.0F, std::log(2.0F), 0.0F};
  EXPECT_EQ(sample_token(logits, options(1, 0, 1), 0.49), 1);
  EXPECT_EQ(sample_token(logits, options(1, 0, 1), 0.51), 0);
  EXPECT_EQ(sample_token(logits, options(1, 0, 1), 0.76), 2);
}

TEST(SampleToken, TopKAndTopPCutTheTail) {
  const std::vector<float> logits = {4.0F, 3.0F, 2.0F, 1.0F};
  for (double draw = 0; draw < 1; draw += 0.01) {
    EXPECT_LT(sample_token(logits, options(5, 2, 1), draw), 2);
    EXPECT_EQ(sample_token(logits, options(1, 0, 0.5), draw), 0);  // 64% of the mass alone
    EXPECT_LT(sample_token(logits, options(1, 0, 0.8), draw), 2);
  }
}

// The cache must not change what the model says: greedy tokens equal the argmax of a full forward
// pass over everything generated so far.
void expect_cache_matches_forward(spec::Recipe recipe) {
  recipe.batch = {1, 1, recipe.model.context};
  Trainer trainer(recipe);
  trainer.initialize();
  randomize(trainer, 4, 0.3F);
  const std::vector<float> master = testing::flat_parameters(trainer);
  std::vector<int32_t> tokens = {7, 3, 99};
  SamplingOptions greedy = options(0, 0, 1);
  greedy.tokens = 100;  // the context of 16 ends it first
  std::vector<int32_t> generated;
  generate(recipe, master.data(), tokens, greedy, [&](int32_t token) {
    generated.push_back(token);
    return true;
  });
  ASSERT_EQ(generated.size(), 16U - 3U + 1U);
  for (const int32_t token : generated) {
    std::vector<int32_t> padded = tokens;
    padded.resize(16, 0);
    const std::vector<float> logits = trainer.logits({padded.data(), padded.data(), 0});
    const auto row = logits.begin() + static_cast<int64_t>(tokens.size() - 1) * 101;
    EXPECT_EQ(std::max_element(row, row + 101) - row, token) << "position " << tokens.size();
    tokens.push_back(token);
    if (tokens.size() > 16) break;
  }
}

TEST(Generate, CacheMatchesForwardForGpt) { expect_cache_matches_forward(gpt_recipe()); }
TEST(Generate, CacheMatchesForwardForLlama) { expect_cache_matches_forward(llama_recipe()); }
TEST(Generate, CacheMatchesForwardWithAdapters) {
  expect_cache_matches_forward(adapted(gpt_recipe()));
  expect_cache_matches_forward(adapted(llama_recipe()));
}

// In a batch a text continues as it does alone, whatever the batch.
void expect_batch_equals_one_by_one(spec::Recipe recipe) {
  recipe.threads = 1;
  Trainer trainer(recipe);
  trainer.initialize();
  randomize(trainer, 4, 0.3F);
  const std::vector<float> master = testing::flat_parameters(trainer);
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 11; ++i) {
    prompts.emplace_back();
    for (int32_t j = 0; j <= i * 5 % 14; ++j) prompts.back().push_back((17 * i + 5 * j) % 101);
  }
  for (const double temperature : {0.0, 0.8}) {
    SamplingOptions sampling = options(temperature, 20, 0.95);
    sampling.tokens = 9;
    std::vector<std::vector<int32_t>> alone(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      generate(recipe, master.data(), prompts[i], sampling, [&](int32_t token) {
        alone[i].push_back(token);
        return token % 7 != 0;
      });
    }
    for (const int64_t batch : {1, 2, 3, 8, 50}) {
      std::vector<std::vector<int32_t>> together(prompts.size());
      std::vector<int> ended(prompts.size(), 0);
      generate_batch(
          recipe, master.data(), prompts, sampling, batch,
          [&](size_t prompt, int32_t token) {
            EXPECT_EQ(ended[prompt], 0);
            together[prompt].push_back(token);
            return token % 7 != 0;
          },
          [&](size_t prompt) { ++ended[prompt]; });
      EXPECT_EQ(together, alone) << "batch " << batch << " temperature " << temperature;
      EXPECT_EQ(ended, std::vector<int>(prompts.size(), 1));
    }
  }
}

TEST(Generate, BatchEqualsOneByOne) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe(), adapted(llama_recipe())}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      expect_batch_equals_one_by_one(recipe);
    }
  }
}

// The parameters set one by one, as they are read from a checkpoint, are those of the flat master.
TEST(Generate, WeightsSetOneByOneAreTheSame) {
  for (spec::Recipe recipe : {gpt_recipe(), adapted(llama_recipe())}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      Trainer trainer(recipe);
      trainer.initialize();
      randomize(trainer, 4, 0.3F);
      const std::vector<float> master = testing::flat_parameters(trainer);
      const GenerationWeights whole(recipe, master.data());
      GenerationWeights parts(recipe);
      for (const spec::PlacedParam& placed : parts.layout().params) {
        parts.set(placed, master.data() + placed.element_offset);
      }
      for (const spec::PlacedParam& placed : parts.layout().params) {
        const engine::Matrix a = whole.parameters().weight(placed.name);
        const engine::Matrix b = parts.parameters().weight(placed.name);
        EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())), 0) << placed.name;
      }
      std::vector<int32_t> expected;
      std::vector<int32_t> found;
      const auto keep_in = [](std::vector<int32_t>& tokens) {
        return [&tokens](int32_t token) {
          tokens.push_back(token);
          return true;
        };
      };
      const SamplingOptions sampling = options(0.8, 20, 0.95);
      generate(recipe, master.data(), {1, 2, 3}, sampling, keep_in(expected));
      generate(parts, {1, 2, 3}, sampling, keep_in(found));
      EXPECT_EQ(found, expected);
      EXPECT_FALSE(found.empty());
    }
  }
}

// Packed weights are fewer bytes, and say what those say that they stand for.
TEST(Generate, PackedWeightsAreSmaller) {
  spec::Recipe recipe = llama_recipe();
  recipe.model.hidden = 128;
  recipe.model.ffn = 256;
  Trainer trainer(recipe);
  trainer.initialize();
  randomize(trainer, 4, 0.3F);
  const std::vector<float> master = testing::flat_parameters(trainer);
  recipe.precision = spec::Precision::bf16;
  const GenerationWeights whole(recipe, master.data());
  const GenerationWeights int8(recipe, master.data(), PackKind::int8);
  const GenerationWeights int4(recipe, master.data(), PackKind::int4);
  EXPECT_LT(int8.bytes(), whole.bytes());
  EXPECT_LT(int4.bytes(), int8.bytes());
  std::vector<int32_t> exact;
  std::vector<int32_t> near;
  SamplingOptions greedy = options(0, 0, 1);
  greedy.tokens = 1;
  const auto first = [&](const GenerationWeights& weights, std::vector<int32_t>& out) {
    generate(weights, {1, 2, 3}, greedy, [&](int32_t token) {
      out.push_back(token);
      return true;
    });
  };
  first(whole, exact);
  first(int8, near);
  EXPECT_EQ(near, exact);
}

TEST(Generate, BatchNamesThePromptThatDoesNotFit) {
  const spec::Recipe recipe = gpt_recipe();
  try {
    generate_batch(
        recipe, nullptr, {{1}, std::vector<int32_t>(16, 1)}, SamplingOptions{}, 2,
        [](size_t, int32_t) { return true; }, [](size_t) {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("prompt 2: 16 tokens"), std::string::npos);
  }
}

TEST(Generate, PromptLongerThanTheContextIsAnError) {
  const spec::Recipe recipe = gpt_recipe();
  const std::vector<int32_t> prompt(16, 1);
  try {
    generate(recipe, nullptr, prompt, SamplingOptions{}, [](int32_t) { return true; });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("16"), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::train
