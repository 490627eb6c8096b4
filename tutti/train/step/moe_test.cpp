// Models with experts as a whole: gradients, determinism, resuming, generation, balance.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tutti/model/decode.h"
#include "tutti/train/testing/gradient_check.h"

namespace tutti::train {
namespace {

using testing::capacity_recipe;
using testing::count_of;
using testing::expect_equal_gradients;
using testing::expect_gradients_match_finite_differences;
using testing::loss_of;
using testing::mixed_moe_recipe;
using testing::mixtral_recipe;
using testing::RandomBatches;
using testing::randomize;

std::vector<float> all_of(const std::vector<StateTensor>& tensors) {
  std::vector<float> out;
  for (const StateTensor& tensor : tensors) {
    const float* x = static_cast<const float*>(tensor.data);
    out.insert(out.end(), x, x + count_of(tensor));
  }
  return out;
}

TEST(Moe, GradientsMatchFiniteDifferences) {
  expect_gradients_match_finite_differences(mixtral_recipe());
}

TEST(Moe, MixedGradientsMatchFiniteDifferences) {
  expect_gradients_match_finite_differences(mixed_moe_recipe());
}

TEST(Moe, CapacityGradientsMatchFiniteDifferences) {
  expect_gradients_match_finite_differences(capacity_recipe());
}

// The experts are frozen then, and gradients pass through them.
TEST(Moe, AdaptersGradientsMatchFiniteDifferences) {
  for (const spec::Recipe& recipe : {mixtral_recipe(), capacity_recipe()}) {
    SCOPED_TRACE(recipe.model.name);
    expect_gradients_match_finite_differences(testing::adapted(recipe));
  }
}

// Losses and capacity are per sequence, so what a micro-batch is changes nothing.
TEST(Moe, AccumulationEqualsOneLargeBatch) {
  for (spec::Recipe whole : {mixed_moe_recipe(), capacity_recipe()}) {
    whole.batch = {6, 6, 7};
    spec::Recipe parts = whole;
    parts.batch.micro = 2;
    Trainer a(whole), b(parts);
    for (Trainer* trainer : {&a, &b}) {
      trainer->initialize();
      randomize(*trainer, 11, 0.15F);
    }
    RandomBatches tokens(whole, 3);
    const BatchView batch = tokens.next();
    const double loss_a = a.gradients([&] { return batch; });
    int64_t micro = 0;
    const double loss_b = b.gradients([&] {
      const int64_t first = 2 * 7 * micro++;
      return BatchView{batch.tokens + first, batch.targets + first, first};
    });
    EXPECT_NEAR(loss_a, loss_b, 1e-6 * loss_a);
    const telemetry::Routing ra = routing_of_step(a.stream(), whole, a.memory());
    const telemetry::Routing rb = routing_of_step(b.stream(), parts, b.memory());
    EXPECT_NEAR(ra.balance_loss, rb.balance_loss, 1e-6);
    EXPECT_NEAR(ra.z_loss, rb.z_loss, 1e-6);
    EXPECT_EQ(ra.load_max_over_mean, rb.load_max_over_mean);
    EXPECT_EQ(ra.dropped_share, rb.dropped_share);
    EXPECT_EQ(ra.dropped_share > 0, whole.model.moe.capacity_factor > 0);
    expect_equal_gradients(a, b, 1e-8);
  }
}

// Rows of no expert are poisoned too: they are never read.
TEST(Moe, NothingIsReadFromThePreviousStep) {
  for (spec::Recipe recipe : {mixtral_recipe(), mixed_moe_recipe(), capacity_recipe()}) {
    recipe.precision = spec::Precision::bf16;
    recipe.model.positions = spec::Positions::learned;  // the frequencies of rope outlive a step
    Trainer trainer(recipe);
    trainer.initialize();
    const double clean = loss_of(trainer, recipe);
    const std::vector<float> before = all_of(trainer.state().gradients());
    trainer.memory().poison_transients();
    EXPECT_EQ(loss_of(trainer, recipe), clean);
    EXPECT_EQ(before, all_of(trainer.state().gradients()));
  }
}

TEST(Moe, SameRecipeGivesBitwiseTheSameStateAlsoAfterResuming) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    for (const int threads : {1, 2}) {
      spec::Recipe recipe = mixed_moe_recipe();
      recipe.precision = precision;
      recipe.threads = threads;
      recipe.model.dropout = 0.1;
      const auto steps = [&](Trainer& trainer, RandomBatches& batches, int64_t first,
                             int64_t last) {
        for (int64_t update = first; update <= last; ++update) {
          trainer.step(batches.source(), 1e-3, update);
        }
      };
      Trainer whole(recipe), first(recipe), second(recipe);
      RandomBatches batches(recipe, 9), again(recipe, 9);
      whole.initialize();
      steps(whole, batches, 1, 12);
      first.initialize();
      steps(first, again, 1, 5);
      const auto from = first.state().tensors(), to = second.state().tensors();
      for (size_t i = 0; i < from.size(); ++i) {
        std::memcpy(to[i].data, from[i].data, static_cast<size_t>(count_of(from[i])) * 4);
      }
      second.state_changed();
      steps(second, again, 6, 12);
      EXPECT_EQ(all_of(whole.state().tensors()), all_of(second.state().tensors()));
    }
  }
}

// Prompt in one piece, then token by token, against the whole sequence at once.
TEST(Moe, GenerationWithACacheEqualsTheWholeSequence) {
  for (spec::Recipe recipe : {mixtral_recipe(), mixed_moe_recipe()}) {
    recipe.batch = {1, 1, 12};
    Trainer trainer(recipe);
    trainer.initialize();
    randomize(trainer, 11, 0.15F);
    RandomBatches batches(recipe, 3);
    const BatchView batch = batches.next();
    const std::vector<float> expected = trainer.logits(batch);
    model::Decoder decoder(recipe.model, trainer.layout(), trainer.memory().arena("weights").data(),
                           DType::f32, 12);
    const int64_t vocabulary = recipe.model.vocabulary;
    for (int64_t at = 0; at < 12;) {
      const int64_t count = at == 0 ? 5 : 1;
      const std::vector<float> logits =
          decoder.feed(trainer.stream(), {batch.tokens + at, batch.tokens + at + count});
      at += count;
      for (int64_t j = 0; j < vocabulary; ++j) {
        const float want = expected[static_cast<size_t>((at - 1) * vocabulary + j)];
        ASSERT_NEAR(logits[static_cast<size_t>(j)], want, 1e-4F * (1 + std::abs(want)));
      }
    }
  }
}

// The bias is not a parameter of the loss: only its own rule moves it, once per step and layer.
TEST(Moe, SelectionBiasMovesByItsRateOnly) {
  spec::Recipe recipe = mixed_moe_recipe();
  recipe.model.moe.router_bias_rate = 0.25;  // exact in bf16
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    recipe.precision = precision;
    Trainer trainer(recipe);
    trainer.initialize();
    RandomBatches batches(recipe, 3);
    trainer.step(batches.source(), 1e-3, 1);
    int64_t found = 0;
    for (const StateTensor& tensor : trainer.state().tensors()) {
      if (!tensor.name.ends_with("moe.router.bias")) continue;
      ++found;
      double moved = 0;
      for (int64_t e = 0; e < count_of(tensor); ++e) {
        const float value = static_cast<const float*>(tensor.data)[e];
        EXPECT_TRUE(value == 0 || std::abs(value) == 0.25F) << tensor.name << " " << value;
        moved += std::abs(static_cast<double>(value));
      }
      EXPECT_EQ(moved > 0, tensor.name.starts_with("param."));
    }
    EXPECT_EQ(found, 2 * 3);
  }
}

// One batch learned by heart, from routers that start out preferring the first expert.
struct Learned {
  double first_loss = 0, last_loss = 0, first_ratio = 0, last_ratio = 0;
};
Learned learn(const spec::Recipe& recipe) {
  Trainer trainer(recipe);
  trainer.initialize();
  for (const StateTensor& tensor : trainer.state().tensors()) {
    float* x = static_cast<float*>(tensor.data);
    if (tensor.name == "param.embedding.token.weight") {
      for (int64_t i = 0; i < count_of(tensor); ++i) x[i] += 0.03F;  // what all tokens share
    } else if (tensor.name.ends_with("moe.router.weight") && tensor.name.starts_with("param.")) {
      for (int64_t j = 0; j < recipe.model.hidden; ++j) x[j] += 0.05F;
    }
  }
  trainer.state_changed();
  RandomBatches batches(recipe, 1);
  const BatchView batch = batches.next();
  Learned out;
  for (int64_t update = 1; update <= 120; ++update) {
    const StepResult result = trainer.step([&] { return batch; }, 1e-2, update);
    (update == 1 ? out.first_loss : out.last_loss) = result.loss;
    (update == 1 ? out.first_ratio : out.last_ratio) = result.routing->load_max_over_mean;
  }
  return out;
}

TEST(Moe, TrainingLearnsAndTheBalanceLossSpreadsTheLoad) {
  spec::Recipe recipe = mixtral_recipe();
  recipe.batch = {6, 6, 14};
  recipe.model.moe.z_loss = 0;
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    recipe.precision = precision;
    recipe.model.moe.balance_loss = 0;
    const Learned free = learn(recipe);
    recipe.model.moe.balance_loss = 0.1;
    const Learned balanced = learn(recipe);
    for (const Learned& run : {free, balanced}) {
      EXPECT_NEAR(run.first_loss, std::log(101.0), 0.1);
      EXPECT_LT(run.last_loss, 0.2);
      EXPECT_GT(run.first_ratio, 2.4);  // 2.5: everyone chooses the first expert
    }
    EXPECT_LT(balanced.last_ratio, 1.3);
    EXPECT_LT(balanced.last_ratio, free.last_ratio);
  }
}

TEST(Moe, TheSelectionBiasSpreadsTheLoadWithoutALoss) {
  spec::Recipe recipe = mixtral_recipe();
  recipe.batch = {6, 6, 14};
  recipe.model.moe.z_loss = 0;
  recipe.model.moe.balance_loss = 0;
  const Learned free = learn(recipe);
  recipe.model.moe.router_bias = true;
  recipe.model.moe.router_bias_rate = 0.01;
  const Learned biased = learn(recipe);
  EXPECT_LT(biased.last_loss, 0.2);
  EXPECT_LT(biased.last_ratio, 1.5);
  EXPECT_LT(biased.last_ratio, free.last_ratio);
}

}  // namespace
}  // namespace tutti::train
