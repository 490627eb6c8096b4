#include "tutti/node/check_node.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <string>

#include "tutti/base/error.h"

namespace tutti::node {
namespace {

NodeHealth checked(double f32_tflops, double gigahertz) {
  NodeHealth health;
  health.topology = read_topology("numa:2(memory=8GB) core:4 pu:1");
  health.checks = {compared("f32_product", f32_tflops, "tflops", Bound::at_least, nullptr, 0, ""),
                   compared("clock", gigahertz, "gigahertz", Bound::at_least, nullptr, 0, ""),
                   limited("cpu_available", 1, "ratio", Bound::at_least, 0.975, "")};
  return health;
}

TEST(NodeHealth, ReferencesAllowTheSpreadOfHealthyNodes) {
  const catalog::NodeKind kind =
      make_node_kind("mine", {checked(1.0, 4.0), checked(0.9, 4.0), checked(1.1, 4.01)}, {});
  EXPECT_EQ(kind.cores, 8);
  EXPECT_EQ(kind.numa_nodes, 2);
  EXPECT_EQ(kind.gpus, 0);
  ASSERT_EQ(kind.figures.size(), 2U);
  EXPECT_EQ(kind.figures.at("f32_product_tflops").value, 1.0);
  EXPECT_NEAR(kind.figures.at("f32_product_tflops").tolerance.value(), 0.15, 0.0101);
  EXPECT_EQ(kind.figures.at("clock_gigahertz").value, 4.0);
  EXPECT_FALSE(kind.figures.at("clock_gigahertz").tolerance);
}

TEST(NodeHealth, AQuickCheckOfThisMachineMeasuresEverything) {
  const std::string folder = testing::TempDir() + "/node_health_" + std::to_string(::getpid());
  FileSystem& files = posix_file_system();
  files.create_directories(folder);
  HealthRequest request;
  request.disk_folder = folder;
  request.quick = true;
  int64_t last = -1;
  const NodeHealth health = check_node(files, request, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, total);
    last = done;
  });
  std::set<std::string> names;
  for (const HealthCheck& check : health.checks) {
    EXPECT_TRUE(names.insert(check.name).second) << check.name << " twice";
    if (check.is_figure && check.status != HealthStatus::skipped) {
      EXPECT_GT(check.value, 0) << check.name;
    }
  }
  for (const char* name : {"topology", "cpu_available", "cpu_quota", "cpu_stolen", "cores_alike",
                           "clock", "governor", "f32_product", "bf16_product", "wrong_products",
                           "memory_copy", "disk_write", "disk_read", "disk_fsync", "gpus"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
  EXPECT_GT(health.seconds, 0);
  EXPECT_FALSE(health.node.empty());
  files.remove_tree(folder);
}

TEST(NodeHealth, OnlyWhatWasAskedForIsProbed) {
  HealthRequest request;
  request.disk_folder = "/no/such/folder";
  request.only = {"topology", "gpu"};
  const NodeHealth health = check_node(posix_file_system(), request, [](int64_t, int64_t) {});
  EXPECT_EQ(health.checks.front().name, "topology");
  EXPECT_EQ(health.checks[1].name, "gpus");
  request.only = {"gpus"};
  EXPECT_THROW(check_node(posix_file_system(), request, [](int64_t, int64_t) {}), Error);
}

}  // namespace
}  // namespace tutti::node
