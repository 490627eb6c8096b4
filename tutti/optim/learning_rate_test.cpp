#include "tutti/optim/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::optim {
namespace {

spec::ScheduleConfig schedule(spec::ScheduleKind kind, int64_t warmup, int64_t decay,
                              double minimum) {
  spec::ScheduleConfig config;
  config.kind = kind;
  config.warmup_steps = warmup;
  config.decay_steps = decay;
  config.minimum_ratio = minimum;
  return config;
}

TEST(LearningRate, WarmsUpLinearlyToThePeak) {
  const auto config = schedule(spec::ScheduleKind::constant, 10, 0, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(2.0, config, 100, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(2.0, config, 100, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(2.0, config, 100, 9), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(2.0, config, 100, 99), 2.0);
}

TEST(LearningRate, CosinePassesItsKnownPoints) {
  const auto config = schedule(spec::ScheduleKind::cosine, 10, 110, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, config, 200, 10), 1.0);
  EXPECT_NEAR(learning_rate(1.0, config, 200, 60), 0.55, 1e-12);  // halfway: mean of 1 and 0.1
  EXPECT_NEAR(learning_rate(1.0, config, 200, 35), 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(learning_rate(1.0, config, 200, 110), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, config, 200, 199), 0.1, 1e-12);  // stays at the minimum
}

TEST(LearningRate, LinearFallsAlongAStraightLine) {
  const auto config = schedule(spec::ScheduleKind::linear, 0, 0, 0.0);
  for (int64_t step = 0; step < 50; ++step) {
    EXPECT_NEAR(learning_rate(3.0, config, 50, step), 3.0 * (1 - step / 50.0), 1e-12);
  }
}

TEST(LearningRate, WsdHoldsThenDecaysOverItsLastSteps) {
  const auto config = schedule(spec::ScheduleKind::wsd, 5, 20, 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, config, 100, 5), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, config, 100, 80), 1.0);
  EXPECT_NEAR(learning_rate(1.0, config, 100, 90), 0.6, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, config, 100, 100), 0.2, 1e-12);
}

TEST(LearningRate, NeverLeavesItsBoundsForAnyKind) {
  for (const auto kind : {spec::ScheduleKind::constant, spec::ScheduleKind::linear,
                          spec::ScheduleKind::cosine, spec::ScheduleKind::wsd}) {
    for (const int64_t warmup : {0, 1, 7, 100}) {
      const auto config = schedule(kind, warmup, 0, 0.05);
      for (int64_t step = 0; step < 100; ++step) {
        const double rate = learning_rate(1.0, config, 100, step);
        EXPECT_GT(rate, 0) << "step " << step;
        EXPECT_LE(rate, 1.0 + 1e-12) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::optim
