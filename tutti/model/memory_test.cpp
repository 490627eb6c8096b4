#include "tutti/model/memory.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::model {
namespace {

spec::MemoryMap small_map() {
  spec::ArenaPlan activations;
  activations.name = "activations";
  activations.bytes = 3 * 512 + 256;
  activations.slots = {
      {"block", 3, 0, 512, {{"a", DType::f32, {4, 6}, 0, 96}, {"b", DType::bf16, {5}, 256, 10}}},
      {"head", 1, 3 * 512, 256, {{"c", DType::f32, {2, 3, 4}, 0, 96}}}};
  spec::ArenaPlan workspace;
  workspace.name = "workspace";
  workspace.bytes = 256;
  spec::ArenaPlan loss = workspace;
  loss.name = "loss";
  return {{activations, workspace, loss}};
}

TEST(Memory, ArenasHaveTheSizesOfTheMap) {
  const Memory memory(small_map());
  for (const spec::ArenaPlan& plan : memory.map().arenas) {
    EXPECT_EQ(memory.arena(plan.name).bytes(), plan.bytes);
  }
}

TEST(Memory, ViewsHaveTheOffsetsOfTheMap) {
  const Memory memory(small_map());
  const char* base = static_cast<const char*>(memory.arena("activations").data());
  const engine::Matrix a = memory.matrix("activations", "block", 2, "a");
  EXPECT_EQ(static_cast<const char*>(a.data) - base, 1024);
  EXPECT_EQ(a.rows, 4);
  EXPECT_EQ(a.cols, 6);
  const engine::Vector b = memory.vector("activations", "block", 1, "b");
  EXPECT_EQ(static_cast<const char*>(b.data) - base, 512 + 256);
  EXPECT_EQ(b.count, 5);
  EXPECT_EQ(b.dtype, DType::bf16);
  const engine::Matrix c = memory.matrix("activations", "head", 0, "c");
  EXPECT_EQ(c.rows, 6);  // all but the last dimension
  EXPECT_EQ(c.cols, 4);
  EXPECT_TRUE(memory.has("activations", "block", "a"));
  EXPECT_FALSE(memory.has("activations", "block", "c"));
}

TEST(Memory, PoisonReadsAsNan) {
  const Memory memory(small_map());
  memory.poison_transients();
  const engine::Matrix a = memory.matrix("activations", "block", 0, "a");
  EXPECT_TRUE(std::isnan(a.as<float>()[0]));
  const engine::Vector b = memory.vector("activations", "block", 2, "b");
  EXPECT_TRUE(std::isnan(to_f32(b.as<bf16>()[4])));
}

TEST(Memory, PartIsTheSameMemoryUnderShorterNames) {
  spec::MemoryMap map = small_map();
  for (const spec::ArenaPlan& plan : small_map().arenas) {
    map.arenas.push_back(plan);
    map.arenas.back().name = "teacher." + plan.name;
  }
  const Memory memory(map);
  const Memory part = memory.part("teacher.");
  EXPECT_EQ(part.map().arenas.size(), 3U);
  EXPECT_EQ(part.map().total_bytes(), small_map().total_bytes());
  const engine::Matrix a = part.matrix("activations", "block", 1, "a");
  EXPECT_EQ(a.data, memory.matrix("teacher.activations", "block", 1, "a").data);
  EXPECT_NE(a.data, memory.matrix("activations", "block", 1, "a").data);
  memory.poison_transients();
  EXPECT_TRUE(std::isnan(a.as<float>()[0]));
}

using MemoryDeathTest = ::testing::Test;

TEST(MemoryDeathTest, UnknownNamesAbortWithTheName) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Memory memory(small_map());
  EXPECT_DEATH((void)memory.matrix("activations", "block", 0, "zz"), "zz");
  EXPECT_DEATH((void)memory.matrix("activations", "block", 3, "a"), "3 repeats");
  EXPECT_DEATH((void)memory.arena("nowhere"), "nowhere");
}

}  // namespace
}  // namespace tutti::model
