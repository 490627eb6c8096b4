// Training below 16 bits: whole models against bf16, and on several ranks against one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tutti/train/testing/chain_batches.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;
using spec::Precision;

constexpr std::array<Precision, 3> kNarrow = {Precision::fp8, Precision::mxfp8, Precision::fp4};

// The mean loss of the last 20 of 150 steps on it.
double narrow_final_loss(const spec::Recipe& recipe) {
  constexpr int64_t kSteps = 150;
  constexpr int64_t kLast = 20;
  Trainer trainer(recipe);
  trainer.initialize();
  ChainBatches batches(recipe);
  double sum = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double rate = 5e-3 * std::min(1.0, static_cast<double>(step) / 20);
    const double loss = trainer.step(batches.source(), rate, step).loss;
    if (step > kSteps - kLast) sum += loss / kLast;
  }
  return sum;
}

// Whole trainings: below 16 bits a model learns what it learns in 16, within a margin. One seed;
// what is smaller than the margin says nothing.
TEST(NarrowTraining, LearnsWhatSixteenBitsLearn) {
  spec::Recipe recipe = llama_recipe();
  recipe.model.vocabulary = 32;
  recipe.model.context = 32;
  recipe.model.hidden = 64;
  recipe.model.heads = recipe.model.kv_heads = 4;
  recipe.model.head_dim = 16;
  recipe.model.ffn = 128;
  recipe.batch = {8, 8, 32};
  recipe.precision = Precision::bf16;
  const double wide = narrow_final_loss(recipe);
  EXPECT_LT(wide, 1.8);  // from log 32 = 3.47
  for (const Precision precision : kNarrow) {
    recipe.precision = precision;
    const double margin = precision == Precision::fp4 ? 0.10 : 0.03;
    EXPECT_NEAR(narrow_final_loss(recipe), wide, margin * wide) << static_cast<int>(precision);
  }
}

double norm(const Tensors& tensors) {
  double sum = 0;
  for (const auto& [name, values] : tensors) {
    for (const float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
  }
  return std::sqrt(sum);
}

double distance(const Tensors& a, const Tensors& b) {
  Tensors off = a;
  for (auto& [name, values] : off) {
    for (size_t i = 0; i < values.size(); ++i) values[i] -= b.at(name)[i];
  }
  return norm(off);
}

// Of the gradients of a whole model, whose products err independently; keeping blocks wide helps.
TEST(NarrowTraining, GradientsErrAsTheFormatsDo) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.model.layers = 3;
    recipe = recipe_on(recipe, {});
    const Training exact = train_on(recipe, 0);
    const auto error = [&](Precision precision, const spec::NarrowConfig& narrow = {}) {
      recipe.precision = precision;
      recipe.narrow = narrow;
      return distance(train_on(recipe, 0).gradients, exact.gradients) / norm(exact.gradients);
    };
    const double bf16 = error(Precision::bf16);
    const double fp8 = error(Precision::fp8);
    const double mxfp8 = error(Precision::mxfp8);
    const double fp4 = error(Precision::fp4);
    EXPECT_LT(bf16, 0.01);
    EXPECT_LT(fp8, 0.15);
    EXPECT_GT(fp8, 2 * bf16);
    EXPECT_LT(mxfp8, 0.15);
    EXPECT_LT(fp4, 0.5);
    EXPECT_GT(fp4, mxfp8);
    EXPECT_LT(error(Precision::fp4, {1, 1, false, false}), fp4);
    // Nothing narrow is left: 16 bits, to the bit.
    EXPECT_EQ(error(Precision::fp4, {1, 2, false, false}), bf16);
  }
}

// A scale is of a rank's micro-batch, and which samples these are does not depend on dp, pp, ZeRO
// or the schedule.
TEST(NarrowTraining, LayoutsThatKeepTensorsWholeAgree) {
  using spec::Pipeline;
  spec::Recipe base = llama_recipe();
  base.model.layers = 4;
  base.precision = Precision::fp8;
  const auto on = [&](const Mesh& mesh) {
    spec::Recipe recipe = recipe_on(base, mesh);
    recipe.batch = {12, 2, 7};
    return train_on(recipe, 3);
  };
  for (const bool random : {false, true}) {
    base.narrow = {.wide_first = 1, .stochastic_gradients = random};
    const Training alone = on({});
    for (const Mesh mesh :
         {Mesh{.dp = 2}, Mesh{.dp = 3, .zero = 1}, Mesh{.dp = 2, .zero = 2},
          Mesh{.dp = 2, .zero = 3}, Mesh{.pp = 2}, Mesh{.pp = 2, .vpp = 2},
          Mesh{.pp = 2, .pipeline = Pipeline::zero_bubble}, Mesh{.dp = 2, .pp = 2, .zero = 1}}) {
      SCOPED_TRACE(text_of(mesh));
      const Training together = on(mesh);
      EXPECT_EQ(together.disagreements, 0);
      EXPECT_LT(gradient_error(together.gradients, alone.gradients), 1e-5);
      if (mesh.dp == 1) {
        EXPECT_EQ(together.gradients, alone.gradients);
      }
      for (size_t i = 0; i < alone.losses.size(); ++i) {
        EXPECT_NEAR(together.losses[i] / alone.losses[i], 1, 1e-3) << "step " << i;
      }
    }
  }
}

// Infinity anywhere reaches the loss or a gradient: the step is skipped.
TEST(NarrowTraining, OverflowIsSeen) {
  for (const Precision precision : kNarrow) {
    spec::Recipe recipe = gpt_recipe();
    recipe.precision = precision;
    Trainer trainer(recipe);
    trainer.initialize();
    for (const spec::PlacedParam& placed : trainer.layout().params) {
      if (placed.name != "blocks.1.mlp.down.weight") continue;
      std::vector<float> values(static_cast<size_t>(placed.param.count()), 0.01F);
      values[5] = std::numeric_limits<float>::infinity();
      trainer.state().set_parameter(placed, values.data());
    }
    trainer.state_changed();
    RandomBatches batches(recipe, 3);
    EXPECT_FALSE(std::isfinite(trainer.step(batches.source(), 1e-3, 1).loss));
  }
}

}  // namespace
}  // namespace tutti::train
