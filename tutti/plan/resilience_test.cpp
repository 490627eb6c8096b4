#include "tutti/plan/resilience.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::plan {
namespace {

TEST(Resilience, OneSlowNodeSlowsEveryStep) {
  EXPECT_EQ(slow_node_factor({0, 1.5}, 100), 1);
  EXPECT_DOUBLE_EQ(slow_node_factor({0.1, 1.5}, 1), 1.05);
  // Two nodes: 1 - 0.9^2 = 0.19 of the steps have a slow one.
  EXPECT_DOUBLE_EQ(slow_node_factor({0.1, 1.5}, 2), 1.095);
  EXPECT_NEAR(slow_node_factor({0.1, 1.5}, 1000), 1.5, 1e-9);
}

TEST(Resilience, NoticeAvoidsTheLossOfAFailure) {
  FailureModel model;
  model.per_job_per_day = 0;
  model.save_seconds = 20;
  model.restart_seconds = 600;
  const double work = 10 * 86400;
  const FailureForecast calm = forecast_failures(model, 64, work);
  // 64 nodes, one in 20 preempted per day: 3.2 per day, 620 s each.
  const SpotForecast noticed = forecast_spot(model, {0.05, 30}, 64, work);
  EXPECT_TRUE(noticed.saves_in_time);
  EXPECT_DOUBLE_EQ(noticed.wall_seconds, calm.wall_seconds / (1 - 3.2 * 620 / 86400));
  EXPECT_NEAR(noticed.preemptions, 3.2 * noticed.wall_seconds / 86400, 1e-9);
  const SpotForecast sudden = forecast_spot(model, {0.05, 10}, 64, work);
  EXPECT_FALSE(sudden.saves_in_time);
  EXPECT_GT(sudden.wall_seconds, noticed.wall_seconds);
  EXPECT_DOUBLE_EQ(forecast_spot(model, {0, 30}, 64, work).wall_seconds, calm.wall_seconds);
  // The time lost exceeds the time available.
  EXPECT_TRUE(std::isinf(forecast_spot(model, {10, 30}, 4096, work).wall_seconds));
}

// Poisson with mean 1: P(X <= 3) = 0.981, P(X <= 4) = 0.9963; with mean 10, P(X <= 18) = 0.9928.
TEST(Resilience, SparesAreThePoissonQuantile) {
  EXPECT_EQ(spares_needed(0.01, 100, 86400), 4);
  EXPECT_EQ(spares_needed(0.01, 100, 86400, 0.02), 3);
  EXPECT_EQ(spares_needed(0.01, 1000, 86400), 18);
  EXPECT_EQ(spares_needed(0, 1000, 86400), 0);
  // 41,472 nodes, 4.4 failures per 1,000 node-days, two days of repair: mean 365.
  EXPECT_NEAR(static_cast<double>(spares_needed(4.4e-3, 41472, 2 * 86400)),
              365 + 2.326 * std::sqrt(365.0), 3);
  // Absurd numbers are answered at once.
  EXPECT_NEAR(static_cast<double>(spares_needed(1e6, 41472, 1e9)), 4.8e14, 1e10);
}

TEST(Resilience, SimulatedRunsPreferDalysInterval) {
  FailureModel model;
  model.save_seconds = 60;
  const SimulatedInterval best = simulated_interval(model, 2048, 20 * 86400, 60, 3);
  const double daly = daly_interval_seconds(60, 1 / interruptions_per_second(model, 2048));
  EXPECT_GT(best.seconds, daly / 2);
  EXPECT_LT(best.seconds, daly * 2);
  EXPECT_NEAR(best.wall_seconds / best.daly_wall_seconds, 1, 0.01);
  EXPECT_EQ(simulated_interval(model, 2048, 20 * 86400, 60, 3).seconds, best.seconds);
}

}  // namespace
}  // namespace tutti::plan
