// Training without f32 masters (optimizer.master none): what rounding costs, on one rank and on
// several, and across saving.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tutti/base/testing/memory_file.h"
#include "tutti/train/testing/chain_batches.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

spec::Recipe without_masters(spec::Recipe recipe, bool stochastic = true) {
  recipe.precision = spec::Precision::bf16;
  recipe.optimizer.master = spec::Master::none;
  recipe.optimizer.stochastic_rounding = stochastic;
  return recipe;
}

// The mean loss of the last 30 of 300 steps, from parameters that are large beside a step.
double final_loss(const spec::Recipe& recipe) {
  constexpr int64_t kSteps = 300;
  constexpr int64_t kLast = 30;
  Trainer trainer(recipe);
  trainer.initialize();
  randomize(trainer, 3, 0.15F);
  ChainBatches batches(recipe);
  double sum = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double rate = 4e-4 * std::min(1.0, static_cast<double>(step) / 20);
    const double loss = trainer.step(batches.source(), rate, step).loss;
    if (step > kSteps - kLast) sum += loss / kLast;
  }
  return sum;
}

TEST(WithoutMasters, StochasticRoundingLearnsWhatMastersLearn) {
  spec::Recipe recipe = llama_recipe();
  recipe.model.vocabulary = 32;
  recipe.model.context = 32;
  recipe.model.hidden = 64;
  recipe.model.heads = recipe.model.kv_heads = 4;
  recipe.model.head_dim = 16;
  recipe.model.ffn = 128;
  recipe.batch = {8, 8, 32};
  recipe.precision = spec::Precision::bf16;
  const double masters = final_loss(recipe);
  const double random = final_loss(without_masters(recipe));
  const double nearest = final_loss(without_masters(recipe, false));
  RecordProperty("masters", std::to_string(masters));
  RecordProperty("stochastic", std::to_string(random));
  RecordProperty("nearest", std::to_string(nearest));
  EXPECT_NEAR(random, masters, 0.03 * masters);
  EXPECT_GT(nearest, masters + 0.10 * masters);
}

// Ranks that hold the same elements round them alike, whichever part of a tensor each one has, and
// the words are those of one rank: what differs is the order of sums, which moves few values across
// a rounding.
TEST(WithoutMasters, RanksRoundTheSameElementsAlike) {
  spec::Recipe experts = mixtral_recipe();
  experts.model.moe.experts = 6;
  for (const spec::Recipe& base : {gpt_recipe(), llama_recipe(), experts}) {
    const spec::Recipe recipe = without_masters(base);
    std::vector<Mesh> meshes = {Mesh{.dp = 2}, Mesh{.dp = 3, .zero = 1}, Mesh{.dp = 2, .zero = 2},
                                Mesh{.dp = 2, .zero = 3}, Mesh{.pp = 2}};
    if (base.model.heads % 2 == 0) meshes.push_back({.tp = 2});
    if (base.model.heads % 2 == 0) meshes.push_back({.dp = 2, .tp = 2, .zero = 1});
    if (base.model.moe.experts > 0) meshes = {Mesh{.dp = 2, .ep = 2}, Mesh{.dp = 4, .ep = 2}};
    const Training alone = train(recipe, {}, 4);
    for (const Mesh& mesh : meshes) {
      SCOPED_TRACE(base.model.name + " on " + text_of(mesh));
      const Training together = train(recipe, mesh, 4);
      EXPECT_EQ(together.disagreements, 0);
      for (size_t i = 0; i < alone.losses.size(); ++i) {
        EXPECT_NEAR(together.losses[i], alone.losses[i], 5e-3 * alone.losses[i]) << "step " << i;
      }
    }
  }
}

TEST(WithoutMasters, ResumesWithTheSameBits) {
  spec::Recipe recipe = recipe_on(without_masters(llama_recipe()), {.dp = 2, .zero = 1});
  MemoryFileSystem files;
  const Tensors saved = train_and_save(recipe, 3, files);
  load_and_go_on(recipe, 3, files, saved, train_on(recipe, 6).losses);

  recipe = without_masters(llama_recipe());
  const auto steps = [&](Trainer& trainer, int64_t first, int64_t end) {
    RandomBatches tokens(recipe, 3);
    tokens.seek(first);
    for (int64_t step = first; step < end; ++step) {
      trainer.step(tokens.source(), 1e-3, step + 1);
    }
  };
  Trainer whole(recipe), first(recipe), second(recipe);
  for (Trainer* trainer : {&whole, &first, &second}) trainer->initialize();
  steps(whole, 0, 6);
  steps(first, 0, 3);
  const auto from = first.state().tensors(), to = second.state().tensors();
  for (size_t i = 0; i < from.size(); ++i) second.state().store(to[i], from[i].data);
  second.state_changed();
  steps(second, 3, 6);
  EXPECT_EQ(second.state().weights_hash(), whole.state().weights_hash());
}

}  // namespace
}  // namespace tutti::train
