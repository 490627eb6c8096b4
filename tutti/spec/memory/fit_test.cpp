#include "tutti/spec/memory/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

Recipe with(const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {"batch.global=32", "batch.micro=16", "batch.sequence=1024"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return recipe_of("gpt2-124m", all);
}

TEST(MemoryFit, UsesAddUpToTheMap) {
  const Recipe recipe = with({});
  int64_t sum = 0;
  int64_t before = INT64_MAX;
  for (const MemoryUse& use : memory_uses(recipe)) {
    EXPECT_LE(use.bytes, before);
    EXPECT_FALSE(use.what.empty()) << use.name;
    before = use.bytes;
    sum += use.bytes;
  }
  EXPECT_EQ(sum, memory_map(recipe).total_bytes());
  EXPECT_EQ(memory_uses(recipe).front().name, "activations");
}

// On the device that the recipe names: on accelerators the last stage has larger logits.
TEST(MemoryFit, FullestRankOfAPipeline) {
  for (const std::string device : {"cpu", "cuda"}) {
    const Recipe recipe =
        with({"parallel.pp=4", "batch.micro=2", "recompute=full", "device=" + device});
    int64_t most = 0;
    for (int64_t stage = 0; stage < 4; ++stage) {
      most = std::max(most, memory_map(recipe, tutti_profile_on(recipe), stage).total_bytes());
    }
    EXPECT_EQ(fullest_memory_map(recipe).total_bytes(), most) << device;
  }
}

// A proposal is a recipe, needs the bytes that it states, fits, and the cheapest comes first.
TEST(MemoryFit, ProposedSettingsFit) {
  const Recipe recipe = with({});
  const int64_t all = memory_map(recipe).total_bytes();
  for (const double share : {0.9, 0.7, 0.5, 0.3}) {
    const auto most = static_cast<int64_t>(share * static_cast<double>(all));
    const std::vector<MemoryChange> changes = changes_that_fit(recipe, most, 3);
    ASSERT_FALSE(changes.empty()) << share;
    for (const MemoryChange& change : changes) {
      const Recipe changed = with(change.settings);
      EXPECT_EQ(memory_map(changed).total_bytes(), change.bytes);
      EXPECT_LE(change.bytes, most);
      EXPECT_EQ(changed.batch.global, recipe.batch.global);
    }
  }
  const auto little = changes_that_fit(recipe, all - 1, 3);
  EXPECT_EQ(little.front().settings, std::vector<std::string>{"recompute=selective"});
  EXPECT_EQ(little.size(), 3U);
}

TEST(MemoryFit, ZeroIsProposedWithReplicas) {
  const Recipe recipe = with({"parallel.dp=2", "batch.micro=1", "recompute=full"});
  const int64_t all = memory_map(recipe).total_bytes();
  const auto changes = changes_that_fit(recipe, all - 1, 3);
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes.front().settings, std::vector<std::string>{"parallel.zero=1"});
}

// With memory of the host beside the accelerator's, state can be on either side.
TEST(MemoryFit, OffloadsOnAccelerators) {
  const Recipe recipe = with({"device=cuda", "recompute=full", "batch.micro=1"});
  const int64_t all = memory_map(recipe).total_bytes();
  const auto changes = changes_that_fit(recipe, all - 1, 3);
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes.front().settings, std::vector<std::string>{"offload.optimizer=true"});
  const Recipe offloaded = with({"device=cuda", "recompute=full", "batch.micro=1",
                                 "offload={optimizer: true, activations: all}"});
  MemoryChange smallest;
  changes_that_fit(recipe, 1000, 3, &smallest);
  const MemoryMap map = memory_map(offloaded);
  EXPECT_EQ(smallest.bytes, map.total_bytes());
  EXPECT_EQ(smallest.host_bytes, map.host_bytes());
  int64_t on_host = 0;
  for (const MemoryUse& use : memory_uses(offloaded)) {
    EXPECT_FALSE(use.what.empty()) << use.name;
    on_host += use.on_host ? use.bytes : 0;
  }
  EXPECT_EQ(on_host, map.host_bytes());
  EXPECT_EQ(memory_map(recipe).host_bytes(), 0);
}

TEST(MemoryFit, ReportsTheSmallestIfNothingFits) {
  const Recipe recipe = with({});
  MemoryChange smallest;
  EXPECT_TRUE(changes_that_fit(recipe, 1000, 3, &smallest).empty());
  EXPECT_EQ(smallest.settings, (std::vector<std::string>{"batch.micro=1", "recompute=full"}));
  EXPECT_EQ(smallest.bytes, memory_map(with(smallest.settings)).total_bytes());
  // Nothing is left to change.
  EXPECT_TRUE(changes_that_fit(with(smallest.settings), INT64_MAX, 3).empty());
}

}  // namespace
}  // namespace tutti::spec
