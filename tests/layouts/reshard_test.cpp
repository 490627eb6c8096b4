// Ten steps in one layout, saved by all its ranks; ten more in others, larger and smaller, whose
// losses are those of the run that was not interrupted.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <vector>

#include "tests/layouts/models.h"
#include "tests/layouts/not_yet.h"
#include "tutti/base/memory_file.h"
#include "tutti/checkpoint/joint_save.h"
#include "tutti/checkpoint/reader.h"
#include "tutti/comm/thread_world.h"
#include "tutti/train/run_state.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

constexpr int64_t kSaved = 10;
constexpr int64_t kSteps = 20;

void on_ranks(const spec::Recipe& recipe,
              const std::function<void(const parallel::Ranks&, int)>& body) {
  if (recipe.parallel.world() == 1) return body({}, 0);
  comm::run_threads(recipe.parallel, [&](comm::World& world, engine::Stream&) {
    body(parallel::ranks_of(world, recipe.model.kv_heads), static_cast<int>(world.rank()));
  });
}

// Saves to `files`; returns the state.
Tensors train_and_save(const Layout& layout, FileSystem& files) {
  const spec::Recipe recipe = recipe_of(layout);
  Tensors saved;
  std::mutex mutex;
  on_ranks(recipe, [&](const parallel::Ranks& ranks, int rank) {
    Trainer trainer(recipe, ranks);
    trainer.initialize();
    RankBatches batches(recipe, ranks.at.dp);
    for (int64_t step = 0; step < kSaved; ++step)
      trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
    RunState state;
    state.step = kSaved;
    checkpoint::write_joint_checkpoint(files, "run", checkpoint_tensors(trainer),
                                       to_checkpoint_state(state, recipe), {},
                                       {rank, static_cast<int>(layout.mesh.world()), "a", 60});
    const std::lock_guard lock(mutex);
    gather(trainer.state(), saved);
  });
  return saved;
}

void load_and_go_on(const Layout& layout, FileSystem& files, const Tensors& saved) {
  const spec::Recipe recipe = recipe_of(layout);
  const std::vector<double>& losses = alone(layout).losses;
  Tensors loaded;
  std::mutex mutex;
  on_ranks(recipe, [&](const parallel::Ranks& ranks, int) {
    Trainer trainer(recipe, ranks);
    trainer.initialize();
    checkpoint::Reader reader(files, "run/step-00000010");
    load_state(reader, trainer);
    {
      const std::lock_guard lock(mutex);
      gather(trainer.state(), loaded);
    }
    RankBatches batches(recipe, ranks.at.dp);
    for (int64_t step = kSaved; step < kSteps; ++step) {
      const StepResult result =
          trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
      EXPECT_NEAR(result.loss / losses[static_cast<size_t>(step)], 1, 1e-5) << "step " << step;
    }
  });
  EXPECT_EQ(loaded, saved);  // every element, to the bit
}

TEST(Reshard, ARunGoesOnInAnyOtherLayout) {
  // All with sequences of 16 tokens, so that every layout has the same samples.
  const std::vector<Mesh> meshes = {
      {.tp = 2},
      {.dp = 2, .cp = 2, .zero = 3},
      {.pp = 2, .cp = 2},
      {.dp = 2, .tp = 2, .pp = 2, .zero = 1},
      {.dp = 3, .tp = 2, .zero = 2},
      {.tp = 4, .pp = 2},
  };
  for (const Kind kind : {Kind::gpt, Kind::llama, Kind::experts}) {
    for (size_t i = 0; i < meshes.size(); ++i) {
      const Layout from = {kind, meshes[i]};
      if (!is_to_be_tried(recipe_of(from), text_of(from))) continue;
      MemoryFileSystem files;
      const Tensors saved = train_and_save(from, files);
      for (const size_t other : {i + 1, i + 3}) {
        const Layout to = {kind, meshes[other % meshes.size()]};
        if (!is_to_be_tried(recipe_of(to), text_of(to))) continue;
        SCOPED_TRACE(text_of(from) + " to " + text_of(to));
        load_and_go_on(to, files, saved);
      }
    }
  }
}

// The same along dp and ZeRO alone.
TEST(Reshard, StagesOfZeroAreExchanged) {
  const std::vector<Mesh> meshes = {{.dp = 2, .zero = 3}, {.dp = 6, .zero = 2}, {},
                                    {.dp = 3, .zero = 3}, {.dp = 4, .zero = 1}, {.dp = 2}};
  for (const Kind kind : {Kind::gpt, Kind::llama}) {
    for (size_t i = 0; i < meshes.size(); ++i) {
      const Layout from = {kind, meshes[i]};
      MemoryFileSystem files;
      const Tensors saved = train_and_save(from, files);
      for (const size_t other : {i + 1, i + 2}) {
        const Layout to = {kind, meshes[other % meshes.size()]};
        SCOPED_TRACE(text_of(from) + " to " + text_of(to));
        load_and_go_on(to, files, saved);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::train
