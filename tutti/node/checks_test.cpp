#include "tutti/node/checks.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tutti/comm/world/thread_world.h"

namespace tutti::node {
namespace {

const HealthCheck& named(const Checks& checks, const std::string& name) {
  for (const HealthCheck& check : checks) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no check " << name;
  return checks.front();
}

TEST(NodeChecks, WhatIsMissingIsNamed) {
  CpuShare share;
  share.available = 0.949;
  share.withheld = 0.05;
  CgroupCpu group;
  group.known = true;
  group.quota_cores = 1.9;
  group.limited_by = "/sys/fs/cgroup/slow";
  const Checks checks = cpu_checks(share, group, 2, nullptr);
  EXPECT_EQ(named(checks, "cpu_available").status, HealthStatus::fail);
  EXPECT_EQ(named(checks, "cpu_available").detail,
            "5.0% withheld by the quota of /sys/fs/cgroup/slow");
  EXPECT_EQ(named(checks, "cpu_quota").status, HealthStatus::fail);
  EXPECT_EQ(named(checks, "cpu_stolen").status, HealthStatus::pass);
  EXPECT_EQ(named(checks, "clock").status, HealthStatus::note);
  EXPECT_EQ(named(cpu_checks({}, {}, 2, nullptr), "cpu_available").status, HealthStatus::pass);
  EXPECT_EQ(named(cpu_checks({}, {}, 2, nullptr), "cpu_quota").status, HealthStatus::skipped);
}

// Half of two cores went to other programs: the node may be as fast as ever.
TEST(NodeChecks, WhatOthersTakeMakesANodeBusy) {
  CpuShare share;
  share.available = 0.5;
  share.others = share.disturbed = 0.5;
  share.slowest = 0.7;
  share.clock_hz = 1e9;
  catalog::NodeKind kind;
  kind.figures["clock_gigahertz"] = {4, std::nullopt};
  Checks checks = cpu_checks(share, {}, 2, &kind);
  for (const char* name : {"cpu_available", "cores_alike", "clock"}) {
    EXPECT_EQ(named(checks, name).status, HealthStatus::busy) << name;
  }
  EXPECT_EQ(state_of(checks), HealthState::busy);
  // A slow core of an otherwise idle node is a slow core.
  share.available = 1;
  share.others = share.disturbed = 0;
  checks = cpu_checks(share, {}, 2, &kind);
  EXPECT_EQ(named(checks, "cpu_available").status, HealthStatus::pass);
  EXPECT_EQ(named(checks, "cores_alike").status, HealthStatus::fail);
  EXPECT_EQ(named(checks, "clock").status, HealthStatus::fail);
  // What is withheld is found also where others use the rest.
  share.available = 0.5;
  share.disturbed = 0.45;
  share.withheld = 0.05;
  EXPECT_EQ(named(cpu_checks(share, {}, 2, nullptr), "cpu_available").status, HealthStatus::fail);
  // By other guests of a machine that this one is a guest of.
  share = {};
  share.stolen = 0.3;
  share.available = 0.7;
  EXPECT_EQ(state_of(cpu_checks(share, {}, 2, nullptr)), HealthState::busy);
}

TEST(NodeChecks, AQuotaOfAllCoresIsNone) {
  CgroupCpu group;
  group.quota_cores = 2;
  EXPECT_EQ(named(cpu_checks({}, group, 2, nullptr), "cpu_quota").status, HealthStatus::pass);
}

TEST(NodeChecks, Governors) {
  catalog::NodeKind kind;
  kind.governor = "performance";
  EXPECT_EQ(governor_check({}, &kind).status, HealthStatus::skipped);
  EXPECT_EQ(governor_check({"powersave"}, nullptr).status, HealthStatus::note);
  EXPECT_EQ(governor_check({"performance", "performance"}, &kind).status, HealthStatus::pass);
  const HealthCheck check = governor_check({"performance", "powersave"}, &kind);
  EXPECT_EQ(check.status, HealthStatus::fail);
  EXPECT_EQ(check.value, 1);
}

catalog::NodeKind two_gpus() {
  catalog::NodeKind kind;
  kind.gpus = 2;
  kind.gpu_names = {"H100", "H100-SXM-80GB"};
  kind.gpu_memory_bytes = 80e9;
  return kind;
}

TEST(NodeChecks, IllGpusAreFoundAndNamed) {
  const auto gpus = read_gpus(TUTTI_FAKE_NVML);
  const catalog::NodeKind kind = two_gpus();
  const Checks checks = gpu_checks(gpus, std::vector<std::string>{"NVRM: Xid 79"}, &kind);
  for (const char* name : {"gpus", "gpu_model", "gpu_memory"}) {
    EXPECT_EQ(named(checks, name).status, HealthStatus::pass) << name;
  }
  for (const char* name :
       {"gpu_ecc", "gpu_rows", "gpu_throttled", "gpu_hot", "gpu_bus", "gpu_xid"}) {
    EXPECT_EQ(named(checks, name).status, HealthStatus::fail) << name;
    EXPECT_EQ(named(checks, name).value, 1) << name;
  }
  EXPECT_EQ(named(checks, "gpu_bus").detail, "00000000:2B:00.0: 8 of 16 lanes");
}

TEST(NodeChecks, MissingAndOtherGpusAreFound) {
  catalog::NodeKind kind = two_gpus();
  EXPECT_EQ(named(gpu_checks(std::nullopt, std::nullopt, &kind), "gpus").status,
            HealthStatus::fail);
  const auto gpus = read_gpus(TUTTI_FAKE_NVML);
  kind.gpus = 8;
  kind.gpu_names = {"H200"};
  kind.gpu_memory_bytes = 141e9;
  const Checks checks = gpu_checks(gpus, std::nullopt, &kind);
  for (const char* name : {"gpus", "gpu_model", "gpu_memory"}) {
    EXPECT_EQ(named(checks, name).status, HealthStatus::fail) << name;
  }
  EXPECT_EQ(named(checks, "gpu_xid").status, HealthStatus::skipped);
}

TEST(NodeChecks, ANodeWithoutGpuSaysSo) {
  const Checks checks = gpu_checks(std::nullopt, std::nullopt, nullptr);
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_EQ(checks[0].status, HealthStatus::skipped);
  EXPECT_EQ(checks[0].detail, "no GPU");
}

TEST(NodeChecks, WrongProductsAreFailures) {
  ProductProbe probe;
  probe.seconds = {1, 1};
  EXPECT_EQ(right_products_check({probe}).status, HealthStatus::pass);
  probe.changed = 1;
  EXPECT_EQ(right_products_check({probe}).status, HealthStatus::fail);
}

TEST(NodeChecks, TheSlowestLinkIsNamed) {
  LinkProbe probe;
  for (int64_t link = 0; link < 4; ++link) {
    probe.links.push_back({link, 10e-6, link == 2 ? 5e9 : 10e9});
  }
  probe.all_reduce_bytes_per_second = 8e9;
  catalog::NodeKind kind;
  kind.figures["all_reduce_gigabytes_per_second"] = {9, std::nullopt};
  const Checks checks = link_checks(probe, {"a", "b", "c", "d"}, &kind);
  EXPECT_EQ(named(checks, "links_alike").status, HealthStatus::fail);
  EXPECT_EQ(named(checks, "links_alike").detail, "slowest: c to d");
  EXPECT_EQ(named(checks, "link").status, HealthStatus::note);
  EXPECT_EQ(named(checks, "all_reduce").status, HealthStatus::pass);
}

TEST(NodeChecks, LinksOfAnyNumberOfRanksAreMeasured) {
  for (const int64_t ranks : {2, 3, 4}) {
    spec::Mesh mesh;
    mesh.dp = ranks;
    std::mutex mutex;
    std::vector<LinkProbe> probes;
    comm::run_threads(mesh, [&](comm::World& world, engine::Stream& stream) {
      const LinkProbe probe = probe_links(world, stream);
      const std::scoped_lock lock(mutex);
      probes.push_back(probe);
    });
    ASSERT_EQ(static_cast<int64_t>(probes.size()), ranks);
    for (const LinkProbe& probe : probes) {
      ASSERT_EQ(static_cast<int64_t>(probe.links.size()), ranks == 2 ? 1 : ranks);
      for (size_t link = 0; link < probe.links.size(); ++link) {
        EXPECT_GT(probe.links[link].latency_seconds, 0);
        EXPECT_GT(probe.links[link].bytes_per_second, 1e6);
        EXPECT_EQ(probe.links[link].bytes_per_second, probes[0].links[link].bytes_per_second);
      }
      EXPECT_GT(probe.all_reduce_bytes_per_second, 1e6);
      EXPECT_EQ(probe.all_reduce_bytes_per_second, probes[0].all_reduce_bytes_per_second);
    }
  }
}

}  // namespace
}  // namespace tutti::node
