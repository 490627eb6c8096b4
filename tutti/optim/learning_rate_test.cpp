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

// The benchmarks' schedules at step 0, 1, the end of the warm-up, half way and the end of the
// decay, computed by hand.

// GPT-3 at a batch of 2048: warm-up ceil(265 * 1536 / 2048), decay 108600 * 1536 / 2048.
TEST(LearningRate, Gpt3IsMegatrons) {
  auto config = schedule(spec::ScheduleKind::cosine, 199, 81450, 0.1);
  config.warmup_form = spec::WarmupForm::from_zero;
  const auto rate = [&](int64_t step) { return learning_rate(2e-5, config, 600, step); };
  EXPECT_EQ(rate(0), 0);
  EXPECT_DOUBLE_EQ(rate(1), 2e-5 / 199);
  EXPECT_DOUBLE_EQ(rate(198), 2e-5 * 198 / 199);
  EXPECT_DOUBLE_EQ(rate(199), 2e-5);
  EXPECT_NEAR(rate(199 + (81450 - 199) / 2), 1.1e-5, 1e-9);  // half way: the mean of both ends
  EXPECT_NEAR(rate(81450), 2e-6, 1e-18);
  EXPECT_NEAR(rate(90000), 2e-6, 1e-18);
  // The run starts at step 3000 of it, with x = (3000 - 199) / (81450 - 199) = 0.0344734.
  config.start_step = 3000;
  EXPECT_NEAR(rate(0), 2e-6 + 1.8e-5 * 0.5 * (1 + std::cos(M_PI * 0.034473422)), 1e-13);
  EXPECT_NEAR(rate(0), 1.994727015e-5, 1e-13);
}

// 405B at a batch of 1152.
TEST(LearningRate, Llama405bIsNemos) {
  auto config = schedule(spec::ScheduleKind::cosine, 8000, 1200000, 0.01);
  config.warmup_form = spec::WarmupForm::between;
  const auto rate = [&](int64_t step) { return learning_rate(8e-5, config, 640, step); };
  EXPECT_DOUBLE_EQ(rate(0), 8e-5 / 8001);
  EXPECT_DOUBLE_EQ(rate(1), 8e-5 * 2 / 8001);
  EXPECT_DOUBLE_EQ(rate(7999), 8e-5 * 8000 / 8001);
  EXPECT_DOUBLE_EQ(rate(8000), 8e-5);
  EXPECT_NEAR(rate(604000), 4.04e-5, 1e-17);  // half way between 8e-5 and 8e-7
  EXPECT_NEAR(rate(1200000), 8e-7, 1e-18);
}

// LoRA: a cosine from the first step to zero after 1024.
TEST(LearningRate, LoraHasNoWarmup) {
  const auto config = schedule(spec::ScheduleKind::cosine, 0, 1024, 0);
  const auto rate = [&](int64_t step) { return learning_rate(4e-4, config, 1024, step); };
  EXPECT_DOUBLE_EQ(rate(0), 4e-4);
  EXPECT_NEAR(rate(1), 4e-4 * (1 - M_PI * M_PI / 4 / 1024 / 1024), 1e-15);  // 1 - x^2 / 4, x = pi/n
  EXPECT_NEAR(rate(512), 2e-4, 1e-18);
  EXPECT_NEAR(rate(1024), 0, 1e-18);
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
