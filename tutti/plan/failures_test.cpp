#include "tutti/plan/failures.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::plan {
namespace {

// Daly 2006, abstract: a checkpoint of 5 minutes; 24 h, 6 h and 15 min to interruption.
TEST(Failures, IntervalOfDalysExamples) {
  EXPECT_NEAR(daly_interval_seconds(300, 24 * 3600) / 60, 117, 1);
  EXPECT_NEAR(daly_interval_seconds(300, 6 * 3600) / 60, 57, 1);
  EXPECT_NEAR(daly_interval_seconds(300, 15 * 60) / 60, 9.1, 0.1);
  EXPECT_EQ(daly_interval_seconds(300, 100), 100);
}

TEST(Failures, RateHasAPartThatIsIndependentOfNodes) {
  FailureModel model;
  model.per_job_per_day = 1;
  model.job_nodes = 0;
  model.per_node_per_day = 0.01;
  EXPECT_DOUBLE_EQ(interruptions_per_second(model, 100) * 86400, 2);
  EXPECT_DOUBLE_EQ(interruptions_per_second(model, 0) * 86400, 1);
  model.job_nodes = 50;
  EXPECT_DOUBLE_EQ(interruptions_per_second(model, 100) * 86400, 2);
  EXPECT_DOUBLE_EQ(interruptions_per_second(model, 10) * 86400, 0.3);
}

TEST(Failures, IntervalIsPoissonWithoutSpread) {
  FailureModel model;
  model.per_job_per_day = 0;
  model.per_node_per_day = 0.01;
  model.spread_ratio = 0;
  const InterruptionInterval chance = interruption_interval(model, 100, 100);
  EXPECT_DOUBLE_EQ(chance.expected, 100);
  EXPECT_DOUBLE_EQ(chance.low, 100 - 16.45);
  EXPECT_DOUBLE_EQ(chance.high, 100 + 16.45);
  model.spread_ratio = 0.5;
  const InterruptionInterval spread = interruption_interval(model, 100, 100);
  EXPECT_LT(spread.low, chance.low);
  EXPECT_GT(spread.high, chance.high);
  EXPECT_DOUBLE_EQ(spread.expected, 100);
}

// A run that cannot be resumed pays for what it loses, at most the probability that it fails, and
// for no checkpoints or restarts.
TEST(Failures, RunsThatCannotBeResumedPayAtMostTheirFailures) {
  FailureModel model;
  model.partial_share = 0.5;
  model.memory_share = 0.5;
  for (const double work : {60.0, 285.0, 3600.0, 43200.0}) {
    SCOPED_TRACE(work);
    const FailureForecast once = forecast_failures(without_resuming(model), 2048, work);
    const double fails = -std::expm1(-work / once.mean_time_to_interruption_seconds);
    EXPECT_GE(once.goodput, 1 - fails);
    EXPECT_LT(once.goodput, 1);
    EXPECT_TRUE(std::isinf(once.interval_seconds));
    EXPECT_EQ(once.memory_interval_seconds, 0);
    const SimulatedFailures played =
        simulate_failures(without_resuming(model), 2048, work, 4000, 7);
    EXPECT_NEAR(played.mean_wall_seconds / once.wall_seconds, 1, 0.05);
  }
  EXPECT_GT(forecast_failures(without_resuming(model), 2048, 285).goodput, 0.98);
  model.per_job_per_day = model.per_node_per_day = 0;
  EXPECT_EQ(forecast_failures(without_resuming(model), 2048, 285).goodput, 1);
}

// The closed form is the expectation of the simulation.
TEST(Failures, SimulationAgreesWithTheClosedForm) {
  FailureModel model;
  model.save_seconds = 30;
  for (const int64_t nodes : {16, 512, 4096}) {
    SCOPED_TRACE(nodes);
    const double work = 20 * 86400;
    const FailureForecast closed = forecast_failures(model, nodes, work);
    const SimulatedFailures played = simulate_failures(model, nodes, work, 200, 7);
    EXPECT_NEAR(played.mean_wall_seconds / closed.wall_seconds, 1, 0.02);
    EXPECT_NEAR(played.mean_interruptions / closed.interruptions, 1, 0.1);
    EXPECT_LT(played.low_wall_seconds, played.mean_wall_seconds);
    EXPECT_GT(played.high_wall_seconds, played.mean_wall_seconds);
  }
}

TEST(Failures, DalysIntervalIsNearTheBest) {
  FailureModel model;
  model.save_seconds = 60;
  const double best = forecast_failures(model, 2048, 1e6).wall_seconds;
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
    FailureModel other = model;
    other.interval_seconds = factor * forecast_failures(model, 2048, 1e6).best_interval_seconds;
    EXPECT_GE(forecast_failures(other, 2048, 1e6).wall_seconds, 0.9999 * best) << factor;
  }
}

// 331,776 GPUs in racks of 72, four to a node: interruptions every few minutes, and still a run.
TEST(Failures, ThousandsOfRacks) {
  FailureModel model;
  model.restart_seconds = 60;
  model.save_seconds = 1;
  const int64_t nodes = 331776 / 4;
  const FailureForecast closed = forecast_failures(model, nodes, 30 * 86400);
  EXPECT_LT(closed.mean_time_to_interruption_seconds, 300);
  EXPECT_GT(closed.goodput, 0.3);
  const SimulatedFailures played = simulate_failures(model, nodes, 30 * 86400, 3, 1);
  EXPECT_NEAR(played.mean_wall_seconds / closed.wall_seconds, 1, 0.05);
}

TEST(Failures, RunWithoutProgressIsEndless) {
  FailureModel model;
  model.per_node_per_day = 1e4;
  const FailureForecast lost = forecast_failures(model, 100, 1e6);
  EXPECT_TRUE(std::isinf(lost.wall_seconds));
  EXPECT_EQ(lost.goodput, 0);
}

// A run that ends before its first checkpoint pays for no save, only for the probability of an
// interruption: two minutes on 1,344 nodes are interrupted once in ninety runs.
TEST(Failures, ShortRunsPayForPossibleInterruptionsOnly) {
  const FailureModel model;
  const double work = 120;
  const FailureForecast f = forecast_failures(model, 1344, work);
  ASSERT_GT(f.interval_seconds, work);
  const double m = f.mean_time_to_interruption_seconds;
  EXPECT_NEAR(f.lost_seconds, work / m * (work / 2 + model.restart_seconds), 0.2);
  EXPECT_GT(f.goodput, 0.95);
  const SimulatedFailures played = simulate_failures(model, 1344, work, 20000, 5);
  EXPECT_NEAR(played.mean_wall_seconds / f.wall_seconds, 1, 0.01);
  // Nor does a run slightly longer than one interval pay for two saves.
  FailureModel rare = model;
  rare.per_job_per_day = 0;
  rare.per_node_per_day = 1e-9;
  rare.interval_seconds = 100;
  EXPECT_NEAR(forecast_failures(rare, 1, 101).wall_seconds, 101 + rare.save_seconds, 1e-3);
  EXPECT_NEAR(forecast_failures(rare, 1, 100).wall_seconds, 100, 1e-3);
}

TEST(Failures, PartialRestartsAreWeightedByTheirShare) {
  FailureModel model;
  const double work = 20 * 86400;
  const double whole = forecast_failures(model, 2048, work).lost_seconds;
  model.partial_share = 1;
  model.partial_restart_seconds = model.restart_seconds;
  EXPECT_NEAR(forecast_failures(model, 2048, work).lost_seconds, whole, 1e-6 * whole);
  model.partial_share = 0.7;
  model.partial_restart_seconds = 45;
  const FailureForecast f = forecast_failures(model, 2048, work);
  // 0.7 of the interruptions save 375 of 420 seconds each.
  EXPECT_NEAR(whole - f.lost_seconds, f.interruptions * 0.7 * 375, 0.05 * whole);
  const SimulatedFailures played = simulate_failures(model, 2048, work, 200, 9);
  EXPECT_NEAR(played.mean_wall_seconds / f.wall_seconds, 1, 0.01);
}

TEST(Failures, PeerCopiesAreASecondLevel) {
  FailureModel model;
  model.save_seconds = 60;
  const double work = 20 * 86400;
  const FailureForecast storage = forecast_failures(model, 2048, work);
  EXPECT_EQ(storage.memory_interval_seconds, 0);
  model.memory_share = 0.9;
  model.memory_save_seconds = 2;
  const FailureForecast both = forecast_failures(model, 2048, work);
  EXPECT_GT(both.goodput, storage.goodput);
  EXPECT_LT(both.memory_interval_seconds, storage.interval_seconds);
  EXPECT_GT(both.interval_seconds, storage.interval_seconds);  // storage is needed less often
  const SimulatedFailures played = simulate_failures(model, 2048, work, 200, 11);
  EXPECT_NEAR(played.mean_wall_seconds / both.wall_seconds, 1, 0.02);
  // If peer copies survive every interruption, only the nearer level counts.
  model.memory_share = 1;
  FailureModel near;
  near.save_seconds = 2;
  EXPECT_NEAR(forecast_failures(model, 2048, work).wall_seconds /
                  forecast_failures(near, 2048, work).wall_seconds,
              1, 1e-9);
}

TEST(Failures, NoneMeansNoLoss) {
  FailureModel model;
  model.per_job_per_day = model.per_node_per_day = 0;
  const FailureForecast none = forecast_failures(model, 100, 1000);
  EXPECT_EQ(none.wall_seconds, 1000);
  EXPECT_EQ(none.goodput, 1);
  EXPECT_TRUE(std::isinf(none.mean_time_to_interruption_seconds));
}

}  // namespace
}  // namespace tutti::plan
