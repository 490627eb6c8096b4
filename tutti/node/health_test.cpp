#include "tutti/node/health.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"

namespace tutti::node {
namespace {

catalog::NodeKind kind() {
  catalog::NodeKind out;
  out.figures["f32_product_tflops"] = {0.4, std::nullopt};
  out.figures["bf16_product_tflops"] = {0.8, 0.1};
  out.figures["disk_fsync_microseconds"] = {500, 0.5};
  return out;
}

HealthStatus product(const char* name, double value) {
  const catalog::NodeKind reference = kind();
  return compared(name, value, "tflops", Bound::at_least, &reference, 0.05, "").status;
}

TEST(Health, AFigureMayBeWorseByTheTolerance) {
  EXPECT_EQ(product("f32_product", 0.381), HealthStatus::pass);
  EXPECT_EQ(product("f32_product", 0.379), HealthStatus::fail);
  EXPECT_EQ(product("f32_product", 4.0), HealthStatus::pass);
  EXPECT_EQ(product("bf16_product", 0.73), HealthStatus::pass);
  EXPECT_EQ(product("bf16_product", 0.71), HealthStatus::fail);
  EXPECT_EQ(product("f32_product", std::nan("")), HealthStatus::fail);
  EXPECT_EQ(product("other_product", 0.0), HealthStatus::note);
}

// Twice as long is half as fast: the same tolerance bounds both.
TEST(Health, TolerancesOfTimesAreThoseOfRates) {
  const catalog::NodeKind reference = kind();
  const HealthCheck check =
      compared("disk_fsync", 999, "microseconds", Bound::at_most, &reference, 0.1, "");
  EXPECT_DOUBLE_EQ(check.threshold, 1000);
  EXPECT_EQ(check.status, HealthStatus::pass);
}

TEST(Health, LimitsHoldWithoutAReference) {
  EXPECT_EQ(limited("x", 0.98, "ratio", Bound::at_least, 0.975, "").status, HealthStatus::pass);
  EXPECT_EQ(limited("x", 0.95, "ratio", Bound::at_least, 0.975, "").status, HealthStatus::fail);
  EXPECT_EQ(limited("x", 1, "count", Bound::at_most, 0, "").status, HealthStatus::fail);
}

NodeHealth sample() {
  NodeHealth health;
  health.node = "n1";
  health.at_wall_seconds = 1.8e9;
  health.seconds = 3.5;
  health.kind = "two-cores";
  health.topology = read_topology("numa:1 core:2 pu:1");
  health.differences = {{"cores", "4", "2"}};
  const catalog::NodeKind reference = kind();
  health.checks = {compared("f32_product", 0.41, "tflops", Bound::at_least, &reference, 0.05, "d"),
                   skipped("gpus", "count", "no GPU")};
  return health;
}

TEST(Health, OneFailureMakesANodeUnhealthy) {
  NodeHealth health = sample();
  EXPECT_TRUE(health.healthy());
  health.checks.push_back(limited("x", 1, "count", Bound::at_most, 0, ""));
  EXPECT_FALSE(health.healthy());
}

TEST(Health, ABusyNodeIsNotUnhealthy) {
  NodeHealth health = sample();
  EXPECT_EQ(health.state(), HealthState::healthy);
  health.checks.push_back(excused(limited("x", 1, "count", Bound::at_most, 0, "one"), "others"));
  EXPECT_EQ(health.checks.back().status, HealthStatus::busy);
  EXPECT_EQ(health.checks.back().detail, "one; others");
  EXPECT_EQ(health.state(), HealthState::busy);
  EXPECT_TRUE(health.healthy());
  const Json json = to_json(health);
  EXPECT_EQ(json["state"], "busy");
  EXPECT_EQ(json["healthy"], true);
  EXPECT_EQ(parse_node_health(json, "file").state(), HealthState::busy);
  health.checks.push_back(limited("y", 1, "count", Bound::at_most, 0, ""));
  EXPECT_EQ(health.state(), HealthState::unhealthy);
  EXPECT_EQ(excused(limited("z", 0, "count", Bound::at_most, 0, ""), "others").status,
            HealthStatus::pass);
}

TEST(Health, WhatIsWrittenIsReadBack) {
  const Json json = to_json(sample());
  EXPECT_EQ(json["state"], "healthy");
  EXPECT_EQ(json["healthy"], true);
  EXPECT_EQ(json["time"], "2027-01-15T08:00:00Z");
  EXPECT_EQ(to_json(parse_node_health(parse_json(json.dump(), "file"), "file")).dump(),
            json.dump());
  Json broken = json;
  broken["checks"][0]["status"] = "fine";
  EXPECT_THROW(parse_node_health(broken, "file"), Error);
}

TEST(Health, ValuesReadWithTheirUnits) {
  EXPECT_EQ(health_value_text(0.9741, "ratio"), "97.4%");
  EXPECT_EQ(health_value_text(0.4123, "tflops"), "0.412 TFLOP/s");
  EXPECT_EQ(health_value_text(3, "count"), "3");
  EXPECT_EQ(health_value_text(4.5, "gigahertz"), "4.500 GHz");
}

}  // namespace
}  // namespace tutti::node
