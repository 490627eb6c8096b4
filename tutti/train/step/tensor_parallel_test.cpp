// Tensor parallel ranks train as one: gradients, losses and checkpoints do not depend on how a
// layer is divided. The ranks are threads of this process.
#include "tutti/model/tensor_parallel.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/testing/memory_file.h"
#include "tutti/train/testing/faulty_groups.h"
#include "tutti/train/testing/tensor_parallel_recipes.h"

namespace tutti::train {
namespace {

using namespace testing;

TEST(TensorParallel, GradientsAndLossesAreThoseOfOneRank) {
  for (const spec::Recipe& recipe :
       {divided_gpt(), divided_gpt(0.1), divided_llama(), with_adapters(divided_gpt(), 0.1),
        with_adapters(divided_llama(), 0)}) {
    const Training alone = train_on(divided(recipe, {}), 20);
    for (const int64_t tp : {2, recipe.model.kv_heads < 4 ? 6 : 4}) {
      const spec::Mesh mesh = {.tp = tp};
      SCOPED_TRACE(
          fmt::format("{} dropout {} {}", recipe.model.name, recipe.model.dropout, text_of(mesh)));
      expect_same(train_on(divided(recipe, mesh), 20), alone);
    }
  }
}

TEST(TensorParallel, WithDataParallelRanks) {
  for (const spec::Recipe& recipe : {divided_gpt(0.1), divided_llama()}) {
    const Training alone = train_on(divided(recipe, {}), 20);
    for (const spec::Mesh mesh :
         {spec::Mesh{.dp = 2, .tp = 2}, spec::Mesh{.dp = 2, .tp = 4, .zero = 1}}) {
      SCOPED_TRACE(recipe.model.name + " " + text_of(mesh));
      expect_same(train_on(divided(recipe, mesh), 20), alone);
    }
  }
}

TEST(TensorParallel, InTheComputeType) {
  for (spec::Recipe recipe :
       {divided_gpt(0.1), divided_llama(), with_adapters(divided_llama(), 0.1)}) {
    recipe.precision = spec::Precision::bf16;
    const Training alone = train_on(divided(recipe, {}), 10);
    const Training together = train_on(divided(recipe, {.tp = 4}), 10);
    EXPECT_EQ(together.disagreements, 0);
    EXPECT_LT(gradient_error(together.gradients, alone.gradients), 4e-2) << recipe.model.name;
    for (size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_NEAR(together.losses[i] / alone.losses[i], 1, 2e-2) << "step " << i;
    }
    EXPECT_EQ(train_on(divided(recipe, {.tp = 4}), 10).losses, together.losses);  // the same bits
  }
}

TEST(TensorParallel, RecomputationChangesNoBit) {
  for (spec::Recipe recipe :
       {divided_gpt(0.1), divided_llama(), with_adapters(divided_gpt(), 0.1)}) {
    recipe = divided(recipe, {.tp = 2});
    const Training kept = train_on(recipe, 3);
    for (const auto mode : {spec::RecomputeMode::selective, spec::RecomputeMode::full}) {
      recipe.recompute = {mode, 0, 1};
      const Training repeated = train_on(recipe, 3);
      EXPECT_EQ(repeated.losses, kept.losses);
      EXPECT_EQ(repeated.gradients, kept.gradients);
    }
  }
}

// What the comparison is for: each of these is found.
TEST(TensorParallel, MistakesAreFound) {
  const spec::Recipe recipe = testing::divided(divided_llama(), {.tp = 4});
  const Training alone = train_on(testing::divided(divided_llama(), {}), 0);
  const auto error_of = [&](const Sabotage& sabotage) {
    const Training together = train_on(recipe, 0, sabotage);
    return gradient_error(together.gradients, alone.gradients);
  };
  FaultyGroups faulty;
  const auto divided = [](parallel::Ranks& ranks) -> comm::Group*& { return ranks.layers.tp; };
  const auto copies = [](parallel::Ranks& ranks) -> comm::Group*& { return ranks.tensor_copies; };
  using comm::CallKind;
  EXPECT_LT(error_of(faulty.make(divided, {})), 1e-5);
  EXPECT_GT(error_of(faulty.make(divided, {CallKind::all_reduce, Mistake::skip})), 1e-2);
  EXPECT_GT(error_of(faulty.make(divided, {CallKind::all_reduce, Mistake::twice})), 1e-2);
  EXPECT_GT(error_of(faulty.make(divided, {CallKind::reduce_scatter, Mistake::skip})), 1e-2);
  EXPECT_GT(error_of(faulty.make(copies, {CallKind::all_reduce, Mistake::skip})), 1e-2);
  EXPECT_GT(error_of(faulty.make(copies, {CallKind::all_reduce, Mistake::twice})), 1e-2);
  EXPECT_GT(error_of({{}, [](const parallel::Ranks& ranks) { return ranks.at.tp; }}), 1e-2);
}

TEST(TensorParallel, LogitsAndEvaluationAreThoseOfOneRank) {
  for (const spec::Recipe& base : {divided_gpt(0.1), divided_llama()}) {
    std::vector<float> alone;
    EvaluationResult result;
    for (const spec::Mesh mesh : {spec::Mesh{}, spec::Mesh{.tp = 4}}) {
      const spec::Recipe recipe = divided(base, mesh);
      std::mutex mutex;
      on_ranks(recipe, [&](const parallel::Ranks& ranks) {
        Trainer trainer(recipe, ranks);
        trainer.initialize();
        RandomBatches batches(recipe, 3);
        const EvaluationResult found = trainer.evaluate(batches.source(), 3);
        batches.seek(0);
        const std::vector<float> logits = trainer.logits(batches.next());
        const std::lock_guard lock(mutex);
        if (mesh.tp == 1) {
          alone = logits;
          result = found;
          return;
        }
        EXPECT_EQ(found.tokens, result.tokens);
        EXPECT_NEAR(found.loss / result.loss, 1, 1e-6);
        ASSERT_EQ(logits.size(), alone.size());
        for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], alone[i], 1e-5) << i;
      });
    }
  }
}

// Documents of lengths that cross the blocks of the ranks.
TEST(TensorParallel, PackedDocuments) {
  for (const spec::Recipe& base : {divided_gpt(), divided_llama()}) {
    std::vector<int32_t> positions, starts;
    for (const int32_t length : {5, 1, 4, 2}) {  // two sequences of six
      for (int32_t i = 0; i < length; ++i) {
        positions.push_back(i);
        starts.push_back(static_cast<int32_t>((positions.size() - 1) % 6) - i);
      }
    }
    Tensors gradients[2];
    for (const spec::Mesh mesh : {spec::Mesh{}, spec::Mesh{.tp = 4}}) {
      spec::Recipe recipe = divided(base, mesh);
      recipe.data.packing = spec::Packing::documents;
      std::mutex mutex;
      on_ranks(recipe, [&](const parallel::Ranks& ranks) {
        Trainer trainer(recipe, ranks);
        trainer.initialize();
        RandomBatches batches(recipe, 3);
        trainer.gradients([&] {
          BatchView view = batches.next();
          view.positions = positions.data();
          view.starts = starts.data();
          return view;
        });
        const std::lock_guard lock(mutex);
        EXPECT_EQ(gather(trainer, trainer.state().gradients(), gradients[mesh.tp > 1 ? 1 : 0]), 0);
      });
    }
    EXPECT_LT(gradient_error(gradients[1], gradients[0]), 1e-5) << base.model.name;
  }
}

// Ten steps on one mesh, saved by all ranks together, ten more on another.
TEST(TensorParallel, ACheckpointOfOneMeshIsContinuedOnAnother) {
  using Meshes = std::pair<spec::Mesh, spec::Mesh>;
  for (const spec::Recipe& base : {divided_gpt(), divided_llama()}) {
    const Training undisturbed = train_on(divided(base, {}), 20);
    for (const auto& [from, to] :
         {Meshes{{.tp = 2}, {}}, Meshes{{.tp = 4}, {.tp = 3}}, Meshes{{.tp = 4}, {.dp = 2}},
          Meshes{{.dp = 2, .tp = 2, .zero = 1}, {.tp = 4}}, Meshes{{}, {.dp = 2, .tp = 2}}}) {
      if (base.model.kv_heads % to.tp != 0 && to.tp % base.model.kv_heads != 0) continue;
      SCOPED_TRACE(base.model.name + ": " + text_of(from) + " to " + text_of(to));
      MemoryFileSystem files;
      const Tensors saved = train_and_save(divided(base, from), 10, files);
      load_and_go_on(divided(base, to), 10, files, saved, undisturbed.losses);
    }
  }
}

}  // namespace
}  // namespace tutti::train
