// Ranks with a device each, whose groups are NCCL's, as threads: on GPUs, or on devices of the
// host.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/world/thread_world.h"
#include "tutti/engine/backend.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/train/testing/enqueued_ranks.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/tensor_parallel_recipes.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

// Their steps run ahead without being asked to.
class DeviceEach : public ::testing::Test {
 protected:
  // Why a mesh cannot have its devices here; empty: it can.
  static std::string missing(const Mesh& mesh) {
    const engine::Backend& cuda = engine::find_backend("cuda");
    if (std::string why = cuda.missing(); !why.empty()) return why;
    const auto count = static_cast<int64_t>(cuda.devices().size());
    if (count >= mesh.world()) return "";
    return fmt::format("{} of {} devices", count, mesh.world());
  }
  static void take_device(comm::WorldOptions& own) {
    own.transport = comm::Transport::nccl;
    own.device = static_cast<int>(own.rank);
    own.gpu = engine::find_backend("cuda").devices().at(static_cast<size_t>(own.rank)).pci;
  }
  static Ran run_ahead(const spec::Recipe& recipe, int64_t steps) {
    Ran out;
    std::mutex mutex;
    const auto body = [&](comm::World& world, engine::Stream&) {
      const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
      Trainer trainer(recipe, ranks);
      EXPECT_TRUE(trainer.steps_run_ahead());
      train_rank(recipe, ranks, trainer, steps, true, mutex, out);
    };
    comm::run_threads(recipe.parallel, body, {}, 1, take_device);
    return out;
  }
};

// Of two addends a sum is the same in any order: no more meet in any of these groups.
TEST_F(DeviceEach, SharedDevicesGiveTheSameSteps) {
  int64_t compared = 0;
  const auto compare = [&](spec::Recipe recipe) {
    if (!missing(recipe.parallel).empty()) return;
    recipe.device = "cuda";
    SCOPED_TRACE(recipe.model.name + " " + text_of(recipe.parallel));
    EXPECT_EQ(run_ahead(recipe, 3), run(recipe, 3, false, false));
    ++compared;
  };
  for (const Mesh& mesh :
       {Mesh{.dp = 2}, Mesh{.dp = 2, .zero = 1}, Mesh{.dp = 2, .zero = 2}, Mesh{.dp = 2, .zero = 3},
        Mesh{.tp = 2}, Mesh{.cp = 2}, Mesh{.pp = 2}, Mesh{.dp = 2, .tp = 2, .zero = 1},
        Mesh{.dp = 2, .pp = 2, .zero = 1}, Mesh{.tp = 2, .pp = 2}, Mesh{.tp = 2, .cp = 2}}) {
    spec::Recipe recipe = divided(divided_llama(), mesh);
    recipe.batch.sequence = 8;
    recipe.precision = mesh.world() > 2 ? spec::Precision::bf16 : spec::Precision::f32;
    compare(recipe);
  }
  for (const Mesh& mesh : {Mesh{.pp = 2, .vpp = 2}, Mesh{.pp = 4}}) {
    spec::Recipe recipe = divided_llama();
    recipe.model.layers = 4;
    compare(divided(recipe, mesh));
  }
  for (const Mesh& mesh :
       {Mesh{.pp = 2}, Mesh{.dp = 2, .ep = 2}, Mesh{.dp = 2, .tp = 2, .ep = 2}}) {
    spec::Recipe recipe = capacity_recipe();
    recipe.model.heads = recipe.model.kv_heads = 4;
    recipe.model.head_dim = 6;
    recipe.model.moe.experts = 6;
    compare(recipe_on(recipe, mesh));
  }
  compare(recipe_on(distilled(gpt_recipe(), llama_recipe().model), {.dp = 2, .zero = 1}));
  if (compared == 0) GTEST_SKIP() << "skipped: " << missing({.dp = 2});
}

TEST_F(DeviceEach, BeginsWithoutTheHostsWaiting) {
  if (const std::string why = missing({.dp = 2}); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 2, .zero = 3}, Mesh{.tp = 2}, Mesh{.pp = 2}}) {
    spec::Recipe recipe = divided(divided_llama(), mesh);
    recipe.device = "cuda";
    SCOPED_TRACE(text_of(mesh));
    const auto body = [&](comm::World& world, engine::Stream&) {
      const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
      Trainer trainer(recipe, ranks);
      trainer.initialize();
      RankBatches batches(recipe, ranks.at.dp);
      expect_no_wait(trainer, batches);
    };
    comm::run_threads(recipe.parallel, body, {}, 1, take_device);
  }
}

// Tensor parallel ranks meet in every chunk of the loss, so they make as many.
TEST_F(DeviceEach, UnequalDevicesUseEqualLossChunks) {
  if (const std::string why = missing({.tp = 2}); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  spec::Recipe recipe = divided(divided_llama(), {.tp = 2});
  recipe.device = "cuda";
  recipe.model.layers = 1;
  recipe.model.vocabulary = 512;
  recipe.model.context = 16;
  recipe.batch = {128, 128, 16};
  const std::vector<Heard> alike = run_ahead(recipe, 1).ranks.at(0);
  const int64_t whole = spec::memory_map(recipe).total_bytes();
  const int64_t least = whole / 15 * 16 * 3 / 4;
  ::setenv("TUTTI_HOST_DEVICE_BYTES", fmt::format("{},{}", 2 * whole, least).c_str(), 1);
  const bool is_reported = engine::find_backend("cuda").devices().at(1).memory_bytes == least;
  std::vector<int64_t> rows(2);
  std::mutex mutex;
  Ran ran;
  const auto body = [&](comm::World& world, engine::Stream&) {
    const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
    Trainer trainer(recipe, ranks);
    const spec::SlotPlan& chunk = trainer.memory().map().arena("loss").slot("chunk");
    rows[static_cast<size_t>(world.rank())] = chunk.tensor("logits").shape[0];
    train_rank(recipe, ranks, trainer, 1, true, mutex, ran);
  };
  comm::run_threads(recipe.parallel, body, {}, 1, take_device);
  ::unsetenv("TUTTI_HOST_DEVICE_BYTES");
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_EQ(ran.ranks.at(0), ran.ranks.at(1));
  EXPECT_NEAR(ran.ranks.at(0).back().loss, alike.back().loss, 1e-5);
  if (!is_reported) GTEST_SKIP() << "skipped: devices are alike here";
  EXPECT_LT(rows[0], 2048);
}

// Whose host fails says so to all, whatever their devices wait for.
TEST_F(DeviceEach, AFailureReachesAll) {
  if (const std::string why = missing({.dp = 2}); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  for (const Mesh& mesh : {Mesh{.dp = 2, .zero = 1}, Mesh{.tp = 2}, Mesh{.pp = 2}}) {
    spec::Recipe recipe = divided(divided_llama(), mesh);
    recipe.device = "cuda";
    SCOPED_TRACE(text_of(mesh));
    std::vector<std::string> heard(2);
    const auto body = [&](comm::World& world, engine::Stream&) {
      const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
      Trainer trainer(recipe, ranks);
      trainer.initialize();
      RankBatches batches(recipe, ranks.at.dp);
      // The other one may still be in the step that the first has done.
      try {
        for (int64_t step = 0; step < 4; ++step) {
          if (step == 1 && world.rank() == 1) throw Error(ErrorKind::io, "the disk is gone");
          trainer.step(batches.step(step), 1e-3, step + 1);
        }
      } catch (const Error& error) {
        heard[static_cast<size_t>(world.rank())] = error.what();
        throw;
      }
    };
    try {
      comm::run_threads(recipe.parallel, body, {}, 1, take_device);
      ADD_FAILURE() << "nothing failed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io) << error.what();
    }
    EXPECT_NE(heard[0].find("the disk is gone"), std::string::npos) << heard[0];
  }
}

}  // namespace
}  // namespace tutti::train
