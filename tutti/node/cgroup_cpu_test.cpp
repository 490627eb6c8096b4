#include "tutti/node/cgroup_cpu.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tutti::node {
namespace {

namespace fs = std::filesystem;

class CgroupTree : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            (testing::UnitTest::GetInstance()->current_test_info()->name() +
             std::to_string(::getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const fs::path at = root_ / path;
    fs::create_directories(at.parent_path());
    std::ofstream(at) << text;
  }
  CgroupCpu read() { return read_cgroup_cpu(root_.string()); }

  fs::path root_;
};

TEST_F(CgroupTree, Version2UsesTheSmallestQuotaOfItsAncestors) {
  write("proc/self/mountinfo", "30 23 0:26 / /cg rw,relatime shared:9 - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  write("cg/slurm/job_7/step_0/cpu.max", "max 100000\n");
  write("cg/slurm/job_7/step_0/cpu.stat", "usage_usec 5\nthrottled_usec 250000\n");
  write("cg/slurm/job_7/cpu.max", "190000 100000\n");
  write("cg/slurm/job_7/cpu.stat", "nr_throttled 4\nthrottled_usec 1500000\n");
  write("cg/slurm/cpu.max", "800000 100000\n");
  const CgroupCpu cpu = read();
  EXPECT_TRUE(cpu.known);
  EXPECT_DOUBLE_EQ(cpu.quota_cores, 1.9);
  EXPECT_EQ(cpu.limited_by, (root_ / "cg/slurm/job_7").string());
  EXPECT_DOUBLE_EQ(cpu.throttled_seconds, 1.75);
}

TEST_F(CgroupTree, Version1UsesTheCpuHierarchy) {
  write("proc/self/mountinfo",
        "31 23 0:27 / /cg/memory rw - cgroup cgroup rw,memory\n"
        "32 23 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  write("proc/self/cgroup", "5:memory:/elsewhere\n4:cpu,cpuacct:/slow\n");
  write("cg/cpu/slow/cpu.cfs_quota_us", "47500\n");
  write("cg/cpu/slow/cpu.cfs_period_us", "50000\n");
  write("cg/cpu/slow/cpu.stat", "nr_periods 10\nthrottled_time 2000000000\n");
  const CgroupCpu cpu = read();
  EXPECT_DOUBLE_EQ(cpu.quota_cores, 0.95);
  EXPECT_DOUBLE_EQ(cpu.throttled_seconds, 2);
}

TEST_F(CgroupTree, ContainersSeeTheirGroupAsRoot) {
  write("proc/self/mountinfo", "32 23 0:28 /docker/ab /cg ro - cgroup2 cgroup rw\n");
  write("proc/self/cgroup", "0::/docker/ab/child\n");
  write("cg/child/cpu.max", "300000 100000\n");
  write("cg/cpu.max", "200000 100000\n");
  write("cg/cpu.stat", "throttled_usec 0\n");
  const CgroupCpu cpu = read();
  EXPECT_DOUBLE_EQ(cpu.quota_cores, 2);
  EXPECT_EQ(cpu.limited_by, (root_ / "cg").string());
}

TEST_F(CgroupTree, WithoutGroupsNothingIsKnown) {
  const CgroupCpu cpu = read();
  EXPECT_FALSE(cpu.known);
  EXPECT_EQ(cpu.quota_cores, 0);
  EXPECT_EQ(cpu.throttled_seconds, 0);
}

}  // namespace
}  // namespace tutti::node
