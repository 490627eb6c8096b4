#include "tutti/train/tasks/evaluator.h"

#include <gtest/gtest.h>

#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::adapted;
using testing::flat_parameters;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::RandomBatches;
using testing::randomize;

TEST(Evaluator, LossesEqualTrainingToTheBit) {
  for (spec::Recipe recipe :
       {gpt_recipe(), llama_recipe(), adapted(gpt_recipe()), adapted(llama_recipe())}) {
    recipe.lora.dropout = recipe.lora.enabled() ? 0.3 : 0;  // plays no part either
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      recipe.model.dropout = 0.3;  // plays no part
      recipe.threads = 1;
      Trainer trainer(recipe);
      trainer.initialize();
      randomize(trainer, 8, 0.2F);
      Evaluator evaluator(recipe, flat_parameters(trainer).data());
      RandomBatches batches(recipe, 2);
      for (int i = 0; i < 3; ++i) {
        const BatchView batch = batches.next();
        const EvaluationResult mine = evaluator.evaluate(batch);
        const EvaluationResult theirs = trainer.evaluate([&] { return batch; }, 1);
        EXPECT_EQ(mine.loss, theirs.loss);
        EXPECT_EQ(mine.tokens, theirs.tokens);
      }
    }
  }
}

TEST(Evaluator, EvaluatesCheckpointsOfSeveralRanks) {
  spec::Recipe recipe = llama_recipe();
  recipe.threads = 1;
  Trainer trainer(recipe);
  trainer.initialize();
  const std::vector<float> master = flat_parameters(trainer);
  RandomBatches batches(recipe, 2);
  const BatchView batch = batches.next();
  const double expected = Evaluator(recipe, master.data()).evaluate(batch).loss;
  recipe.parallel = {.dp = 2, .tp = 2, .pp = 2, .zero = 3};
  EXPECT_EQ(Evaluator(recipe, master.data()).evaluate(batch).loss, expected);
}

// One memory serves sequences of any length that divides its rows; a row's loss depends on what
// comes before it in its sequence and on nothing else.
TEST(Evaluator, ShapesShareTheMemory) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.batch = {4, 4, 16};
    recipe.threads = 1;
    Trainer trainer(recipe);
    trainer.initialize();
    randomize(trainer, 8, 0.2F);
    Evaluator evaluator(recipe, flat_parameters(trainer).data());
    RandomBatches batches(recipe, 2);
    const BatchView batch = batches.next();
    const float* rows = evaluator.row_losses({4, 16}, batch);
    const std::vector<float> as_long(rows, rows + 64);
    rows = evaluator.row_losses({8, 8}, batch);
    for (int sequence = 0; sequence < 4; ++sequence) {
      for (int t = 0; t < 8; ++t) {
        EXPECT_NEAR(rows[16 * sequence + t], as_long[static_cast<size_t>(16 * sequence + t)], 1e-4);
      }
    }
    rows = evaluator.row_losses({4, 16}, batch);
    EXPECT_EQ(std::vector<float>(rows, rows + 64), as_long);
  }
}

TEST(Evaluator, HoldsLittleMoreThanTheWeights) {
  spec::Recipe recipe = gpt_recipe();
  recipe.model.layers = 50;
  const int64_t weights = spec::inference_memory_map(recipe).arena("weights").bytes;
  EXPECT_LT(spec::inference_memory_map(recipe).total_bytes(),
            weights + spec::memory_map(recipe).arena("activations").bytes / 10);
  Evaluator evaluator(recipe, std::vector<float>(static_cast<size_t>(weights / 4)).data());
}

}  // namespace
}  // namespace tutti::train
