#include "tutti/train/step/device_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/comm/world/thread_world.h"
#include "tutti/engine/backend.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/train/step/trainer.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::gpt_recipe;

TEST(DeviceMemory, TheMostRanksThatShareADeviceCount) {
  EXPECT_EQ(ranks_per_device(1, 1), 1);
  EXPECT_EQ(ranks_per_device(8, 8), 1);
  EXPECT_EQ(ranks_per_device(2, 8), 1);
  EXPECT_EQ(ranks_per_device(9, 8), 2);
  EXPECT_EQ(ranks_per_device(4, 1), 4);
  EXPECT_EQ(ranks_per_device(4, 0), 1);
}

TEST(DeviceMemory, ACpuHasNone) { EXPECT_EQ(device_memory_bytes(gpt_recipe(), 0, 2), 0); }

TEST(DeviceMemory, RanksThatShareADeviceDivideIt) {
  spec::Recipe recipe = gpt_recipe();
  recipe.device = "cuda";
  const std::vector<engine::DeviceInfo> devices = engine::find_backend("cuda").devices();
  if (devices.empty()) GTEST_SKIP() << "skipped: no device";
  const auto count = static_cast<int64_t>(devices.size());
  const int64_t all = devices.front().memory_bytes;
  EXPECT_EQ(device_memory_bytes(recipe), all);
  EXPECT_EQ(device_memory_bytes(recipe, -1), all);
  EXPECT_EQ(device_memory_bytes(recipe, 0, count), all);
  EXPECT_EQ(device_memory_bytes(recipe, 0, 3 * count), all / 3);
  EXPECT_EQ(device_memory_bytes(recipe, static_cast<int>(count)), 0);
}

TEST(DeviceMemory, AllRanksHearOfTheLeast) {
  EXPECT_EQ(least_device_bytes(7, nullptr), 7);
  comm::run_threads({.dp = 3}, [](comm::World& world, engine::Stream&) {
    const int64_t own = (int64_t{80} << 30) + (world.rank() == 1 ? 0 : world.rank() + 5);
    EXPECT_EQ(least_device_bytes(own, &world.all()), int64_t{80} << 30);
  });
}

// Of 2,048 rows of logits in a micro-batch, each rank's only one.
spec::Recipe tall(const spec::Mesh& mesh) {
  spec::Recipe recipe = gpt_recipe();
  recipe.device = "cuda";
  recipe.parallel = mesh;
  recipe.threads = 1;
  recipe.model.layers = 1;
  recipe.model.heads = recipe.model.kv_heads = 4;
  recipe.model.head_dim = 6;
  recipe.model.vocabulary = 4096;
  recipe.batch = {256, 128, 16};
  return recipe;
}

// Sets the memory that devices report, until it is destroyed.
class ReportedBytes {
 public:
  explicit ReportedBytes(const std::vector<int64_t>& bytes) {
    ::setenv("TUTTI_HOST_DEVICE_BYTES", fmt::format("{}", fmt::join(bytes, ",")).c_str(), 1);
  }
  ~ReportedBytes() { ::unsetenv("TUTTI_HOST_DEVICE_BYTES"); }
  ReportedBytes(const ReportedBytes&) = delete;
  ReportedBytes& operator=(const ReportedBytes&) = delete;
};

// That all logits fit into, and barely.
int64_t bytes_for_all_rows(const spec::Recipe& recipe) {
  return spec::memory_map(recipe).total_bytes() / 15 * 16 + (int64_t{1} << 20);
}

std::vector<int64_t> rows_of_ranks(const spec::Recipe& recipe, const comm::Arrange& arrange = {}) {
  std::vector<int64_t> rows(static_cast<size_t>(recipe.parallel.world()));
  const auto body = [&](comm::World& world, engine::Stream&) {
    const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
    const Trainer trainer(recipe, ranks);
    const spec::SlotPlan& chunk = trainer.memory().map().arena("loss").slot("chunk");
    rows[static_cast<size_t>(world.rank())] = chunk.tensor("logits").shape[0];
  };
  comm::run_threads(recipe.parallel, body, {}, 1, arrange);
  return rows;
}

TEST(DeviceMemory, RanksThatShareADevicePlanForTheirShare) {
  if (engine::find_backend("cuda").devices().size() != 1) GTEST_SKIP() << "skipped: not one device";
  const spec::Recipe recipe = tall({.dp = 2});
  const int64_t enough = bytes_for_all_rows(recipe);
  {
    const ReportedBytes reported({2 * enough});
    const std::vector<engine::DeviceInfo> devices = engine::find_backend("cuda").devices();
    if (devices.front().memory_bytes != 2 * enough) GTEST_SKIP() << "skipped: not the host";
    EXPECT_EQ(rows_of_ranks(recipe), (std::vector<int64_t>{2048, 2048}));
  }
  const ReportedBytes reported({2 * enough * 3 / 4});
  const std::vector<int64_t> rows = rows_of_ranks(recipe);
  EXPECT_LT(rows[0], 2048);
  EXPECT_EQ(rows[0], rows[1]);
}

}  // namespace
}  // namespace tutti::train
