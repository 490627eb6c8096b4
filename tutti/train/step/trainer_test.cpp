#include "tutti/train/step/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/spec/program/profile.h"
#include "tutti/train/testing/gradient_check.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::count_of;
using testing::expect_equal_gradients;
using testing::expect_gradients_match_finite_differences;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::loss_of;
using testing::RandomBatches;
using testing::randomize;

TEST(Trainer, GptGradientsMatchFiniteDifferences) {
  expect_gradients_match_finite_differences(gpt_recipe());
}

TEST(Trainer, UntiedGptGradientsMatchFiniteDifferences) {
  spec::Recipe recipe = gpt_recipe();
  recipe.model.tied_embeddings = false;
  expect_gradients_match_finite_differences(recipe);
}

TEST(Trainer, LlamaGradientsMatchFiniteDifferences) {
  expect_gradients_match_finite_differences(llama_recipe());
}

// The mask is keyed by position, so both sides of the difference drop the same elements.
TEST(Trainer, DropoutGradientsMatchFiniteDifferences) {
  spec::Recipe recipe = gpt_recipe();
  recipe.model.dropout = 0.25;
  expect_gradients_match_finite_differences(recipe);
}

// Every target, fused and separate; dropout of both kinds.
TEST(Trainer, AdapterGradientsMatchFiniteDifferences) {
  for (const std::vector<std::string>& targets : std::vector<std::vector<std::string>>{
           {"qkv", "output", "mlp"}, {"query", "value", "mlp.down"}, {"output"}, {"mlp.up"}}) {
    for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
      for (const double dropout : {0.0, 0.25}) {
        recipe.lora = {3, 4, dropout, targets};
        recipe.model.dropout = dropout / 2;
        SCOPED_TRACE(
            fmt::format("{} {} dropout {}", recipe.model.name, fmt::join(targets, ","), dropout));
        expect_gradients_match_finite_differences(recipe);
      }
    }
  }
}

void expect_accumulation_equals_one_large_batch(spec::Recipe whole) {
  whole.batch = {6, 6, 7};
  spec::Recipe parts = whole;
  parts.batch.micro = 2;
  Trainer a(whole), b(parts);
  a.initialize();
  b.initialize();
  RandomBatches tokens(whole, 3);
  const BatchView batch = tokens.next();
  const double loss_a = a.gradients([&] { return batch; });
  int64_t micro = 0;
  const double loss_b = b.gradients([&] {
    const int64_t first = 2 * 7 * micro++;
    return BatchView{batch.tokens + first, batch.targets + first, first};
  });
  EXPECT_NEAR(loss_a, loss_b, 1e-6 * loss_a);
  expect_equal_gradients(a, b, 1e-9);
}

TEST(Trainer, AccumulationEqualsOneLargeBatch) {
  spec::Recipe recipe = llama_recipe();
  expect_accumulation_equals_one_large_batch(recipe);
  recipe.lora = {4, 8, 0.2, {"query", "value", "mlp"}};
  expect_accumulation_equals_one_large_batch(recipe);
}

TEST(Trainer, SameRecipeGivesBitwiseTheSameLosses) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    spec::Recipe recipe = llama_recipe();
    recipe.precision = precision;
    recipe.model.dropout = 0.1;
    if (precision == spec::Precision::bf16) recipe.lora = {4, 8, 0.1, {"qkv", "mlp"}};
    std::vector<double> losses[2];
    for (std::vector<double>& run : losses) {
      Trainer trainer(recipe);
      trainer.initialize();
      RandomBatches batches(recipe, 9);
      for (int64_t update = 1; update <= 12; ++update) {
        run.push_back(trainer.step(batches.source(), 1e-3, update).loss);
      }
    }
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_NE(losses[0].front(), losses[0].back());
  }
}

TEST(Trainer, TrainingLowersTheLossInBothPrecisions) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
      recipe.precision = precision;
      recipe.optimizer.learning_rate = 1e-2;
      Trainer trainer(recipe);
      trainer.initialize();
      RandomBatches batches(recipe, 1);
      const BatchView batch = batches.next();  // one batch, learned by heart
      const double first = trainer.step([&] { return batch; }, 1e-2, 1).loss;
      EXPECT_NEAR(first, std::log(101.0), 0.1);  // nothing known: uniform
      double last = first;
      for (int64_t update = 2; update <= 60; ++update) {
        last = trainer.step([&] { return batch; }, 1e-2, update).loss;
      }
      EXPECT_LT(last, 0.2);
    }
  }
}

// What the base does is left alone: only adapters change.
TEST(Trainer, AdaptersLearnAndTheBaseStays) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
      recipe.precision = precision;
      recipe.lora = {8, 16, 0, {"qkv", "output", "mlp"}};
      Trainer trainer(recipe);
      trainer.initialize();
      randomize(trainer, 3, 0.3F);
      const engine::Arena& weights = trainer.memory().arena("weights");
      const int64_t frozen =
          trainer.layout().trainable_elements * dtype_bytes(spec::compute_type(recipe.precision));
      const char* begin = static_cast<const char*>(weights.data()) + frozen;
      const std::vector<char> before(begin, begin + weights.bytes() - frozen);
      RandomBatches batches(recipe, 1);
      const BatchView batch = batches.next();
      const double first = trainer.step([&] { return batch; }, 1e-2, 1).loss;
      double last = first;
      for (int64_t update = 2; update <= 60; ++update) {
        last = trainer.step([&] { return batch; }, 1e-2, update).loss;
      }
      EXPECT_LT(last, 0.6 * first);
      EXPECT_EQ(std::memcmp(before.data(), begin, before.size()), 0);
    }
  }
}

// B is zero at first, so that a fresh adapter changes nothing.
TEST(Trainer, FreshAdaptersChangeNoLogit) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.precision = spec::Precision::bf16;
    Trainer plain(recipe);
    recipe.lora = {8, 16, 0.5, {"query", "key", "value", "output", "mlp"}};
    Trainer adapted(recipe);
    plain.initialize();
    adapted.initialize();
    RandomBatches one(recipe, 1), two(recipe, 1);
    EXPECT_EQ(plain.logits(one.next()), adapted.logits(two.next()));
  }
}

TEST(Trainer, NothingIsReadFromThePreviousStep) {
  spec::Recipe recipe = gpt_recipe();
  recipe.precision = spec::Precision::bf16;
  recipe.lora = {4, 8, 0.2, {"qkv", "output", "mlp"}};
  Trainer trainer(recipe);
  trainer.initialize();
  const double clean = loss_of(trainer, recipe);
  std::vector<float> before;
  for (const StateTensor& tensor : trainer.state().gradients()) {
    const float* g = static_cast<const float*>(tensor.data);
    before.insert(before.end(), g, g + count_of(tensor));
  }
  trainer.memory().poison_transients();
  EXPECT_EQ(loss_of(trainer, recipe), clean);
  std::vector<float> after;
  for (const StateTensor& tensor : trainer.state().gradients()) {
    const float* g = static_cast<const float*>(tensor.data);
    after.insert(after.end(), g, g + count_of(tensor));
  }
  EXPECT_EQ(before, after);
}

TEST(Trainer, NonFiniteStepIsSkippedAndNamesItsTensor) {
  spec::Recipe recipe = gpt_recipe();
  Trainer trainer(recipe);
  trainer.initialize();
  float* embedding = nullptr;
  for (const StateTensor& tensor : trainer.state().tensors()) {
    if (tensor.name == "param.blocks.1.mlp.down.weight")
      embedding = static_cast<float*>(tensor.data);
  }
  ASSERT_NE(embedding, nullptr);
  embedding[5] = std::numeric_limits<float>::infinity();
  std::vector<float> before;
  for (const StateTensor& tensor : trainer.state().tensors()) {
    const float* x = static_cast<const float*>(tensor.data);
    before.insert(before.end(), x, x + count_of(tensor));
  }
  RandomBatches batches(recipe, 1);
  const StepResult result = trainer.step(batches.source(), 1e-3, 1);
  EXPECT_FALSE(result.applied);
  EXPECT_FALSE(result.nonfinite_tensor.empty());
  std::vector<float> after;
  for (const StateTensor& tensor : trainer.state().tensors()) {
    const float* x = static_cast<const float*>(tensor.data);
    after.insert(after.end(), x, x + count_of(tensor));
  }
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
}

TEST(Trainer, ArenasAreTheMemoryMap) {
  const Trainer trainer(gpt_recipe());
  int64_t bytes = 0;
  for (const spec::ArenaPlan& plan : trainer.memory().map().arenas) {
    EXPECT_EQ(trainer.memory().arena(plan.name).bytes(), plan.bytes);
    bytes += plan.bytes;
  }
  EXPECT_EQ(bytes, trainer.memory().map().total_bytes());
}

}  // namespace
}  // namespace tutti::train
