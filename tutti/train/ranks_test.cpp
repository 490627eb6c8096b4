// Several ranks train as one: gradients, losses and checkpoints do not depend on the mesh. The
// ranks are threads of this process.
#include "tutti/parallel/ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/memory_file.h"
#include "tutti/checkpoint/joint_save.h"
#include "tutti/checkpoint/reader.h"
#include "tutti/comm/thread_world.h"
#include "tutti/train/layout_test_support.h"
#include "tutti/train/run_state.h"

namespace tutti::train {
namespace {

using namespace testing;

TEST(Ranks, GradientsAndLossesDoNotDependOnTheMesh) {
  spec::Recipe dropped = gpt_recipe();
  dropped.model.dropout = 0.1;
  for (const spec::Recipe& recipe :
       {gpt_recipe(), llama_recipe(), dropped, adapted(gpt_recipe())}) {
    const Training alone = train(recipe, {}, 20);
    for (const spec::Mesh mesh : {spec::Mesh{.dp = 2}, spec::Mesh{.dp = 3, .zero = 1},
                                  spec::Mesh{.dp = 4, .zero = 1}, spec::Mesh{.dp = 6}}) {
      SCOPED_TRACE(
          fmt::format("{} dropout {} {}", recipe.model.name, recipe.model.dropout, text_of(mesh)));
      expect_same(train(recipe, mesh, 20), alone);
    }
  }
}

// What the comparison is for: each of these is found.
TEST(Ranks, MistakesAreFound) {
  const Training alone = train(gpt_recipe(), {}, 1);
  const Sabotage no_all_reduce = {[](parallel::Ranks& ranks) { ranks.replicas = nullptr; }, {}};
  const Sabotage repeats_samples = {{}, [](const parallel::Ranks&) { return int64_t{0}; }};
  for (const Sabotage& sabotage : {no_all_reduce, repeats_samples}) {
    const Training together = train(gpt_recipe(), {.dp = 2}, 1, sabotage);
    EXPECT_GT(gradient_error(together.gradients, alone.gradients), 1e-2);
  }
}

TEST(Ranks, InTheComputeTypeMastersAndMomentsAreSharded) {
  spec::Recipe recipe = llama_recipe();
  recipe.precision = spec::Precision::bf16;
  const Training alone = train(recipe, {}, 10);
  const Training whole = train(recipe, {.dp = 3}, 10);
  const Training sharded = train(recipe, {.dp = 3, .zero = 1}, 10);
  EXPECT_EQ(sharded.losses, whole.losses);  // the same sums in the same order
  EXPECT_EQ(sharded.state, whole.state);
  for (size_t i = 0; i < alone.losses.size(); ++i) {
    EXPECT_NEAR(whole.losses[i] / alone.losses[i], 1, 2e-2) << "step " << i;
  }
}

// Ten steps on one mesh, saved by all ranks together, ten more on another.
TEST(Ranks, ACheckpointOfOneMeshIsContinuedOnAnother) {
  const spec::Recipe base = gpt_recipe();
  const Training undisturbed = train(base, {}, 20);
  for (const auto& [from, to] :
       std::vector<std::pair<spec::Mesh, spec::Mesh>>{{{.dp = 3, .zero = 1}, {.dp = 2, .zero = 1}},
                                                      {{.dp = 2}, {.dp = 6, .zero = 1}},
                                                      {{.dp = 4, .zero = 1}, {}},
                                                      {{.pp = 2}, {.dp = 2, .pp = 2, .zero = 1}},
                                                      {{.dp = 2, .pp = 2, .zero = 1}, {.dp = 3}}}) {
    SCOPED_TRACE(text_of(from) + " to " + text_of(to));
    MemoryFileSystem files;
    Tensors saved;
    std::mutex mutex;
    comm::run_threads(from, [&, from = from](comm::World& world, engine::Stream&) {
      const spec::Recipe recipe = recipe_on(base, from);
      const parallel::Ranks ranks = parallel::ranks_of(world);
      Trainer trainer(recipe, ranks);
      trainer.initialize();
      RankBatches batches(recipe, ranks.at.dp);
      for (int64_t step = 0; step < 10; ++step)
        trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
      RunState state;
      state.step = 10;
      checkpoint::write_joint_checkpoint(
          files, "run", checkpoint_tensors(trainer), to_checkpoint_state(state, recipe), {},
          {static_cast<int>(world.rank()), static_cast<int>(world.size()), "a", 60});
      const std::lock_guard lock(mutex);
      gather(trainer.state(), saved);
    });
    const auto go_on = [&, to = to](const parallel::Ranks& ranks) {
      const spec::Recipe recipe = recipe_on(base, to);
      Trainer trainer(recipe, ranks);
      trainer.initialize();
      checkpoint::Reader reader(files, "run/step-00000010");
      load_state(reader, trainer);
      Tensors loaded;
      gather(trainer.state(), loaded);
      for (const auto& [name, values] : loaded) {
        for (size_t i = 0; i < values.size(); ++i) {
          if (std::isnan(values[i])) continue;  // another rank's
          ASSERT_EQ(values[i], saved.at(name)[i]) << name << " " << i;
        }
      }
      RankBatches batches(recipe, ranks.at.dp);
      for (int64_t step = 10; step < 20; ++step) {
        const StepResult result =
            trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
        EXPECT_NEAR(result.loss / undisturbed.losses[static_cast<size_t>(step)], 1, 1e-5);
      }
    };
    if (to.world() == 1) {
      go_on({});
    } else {
      comm::run_threads(
          to, [&](comm::World& world, engine::Stream&) { go_on(parallel::ranks_of(world)); });
    }
  }
}

}  // namespace
}  // namespace tutti::train
