#include "tutti/node/cpu_wait.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tutti::node {
namespace {

TEST(CpuWait, IsWhatWasAskedForAndNotGot) {
  const CpuUse before = {10, 5, 1, 0};
  EXPECT_DOUBLE_EQ(lost_share(before, {12, 8, 2, 0}), 0.25);
  EXPECT_DOUBLE_EQ(lost_share(before, {12, 8, 1, 1}), 0.25);  // by the host
  EXPECT_EQ(lost_share(before, {12, 8, 1, 0}), 0);
  // Of a thread that waits for a disk.
  EXPECT_EQ(lost_share(before, {12, 5.001, 1.001, 0}), 0);
  EXPECT_EQ(lost_share(before, before), 0);
}

TEST(CpuWait, IsReadOfAllThreads) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / "tutti-cpu-wait";
  std::filesystem::create_directories(root / "proc/self/task/7");
  std::filesystem::create_directories(root / "proc/self/task/8");
  std::ofstream(root / "proc/self/task/7/schedstat") << "2000000000 500000000 3\n";
  std::ofstream(root / "proc/self/task/8/schedstat") << "1000000000 0 1\n";
  std::ofstream(root / "proc/stat") << "cpu  1 2 3 4 5 6 7 0 0 0\n";
  const CpuUse use = read_cpu_use(root);
  EXPECT_DOUBLE_EQ(use.ran_seconds, 3);
  EXPECT_DOUBLE_EQ(use.waited_seconds, 0.5);
  EXPECT_EQ(use.stolen_seconds, 0);
  EXPECT_EQ(read_cpu_use(root / "nowhere").ran_seconds, 0);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tutti::node
