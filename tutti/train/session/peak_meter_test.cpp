#include "tutti/train/session/peak_meter.h"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

TEST(PeakMeter, NoStepIsAboveThePeak) {
  PeakMeter meter(100, false);
  EXPECT_DOUBLE_EQ(meter.add_step(50, 1), 0.5);
  EXPECT_DOUBLE_EQ(meter.add_step(150, 1), 1);
  EXPECT_DOUBLE_EQ(meter.peak_flops_per_second(), 100);  // one step shows no rate
}

TEST(PeakMeter, FasterStepsRaiseIt) {
  PeakMeter meter(100, false);
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(meter.add_step(150, 1), 1);
  EXPECT_FALSE(meter.was_raised());
  EXPECT_DOUBLE_EQ(meter.add_step(150, 1), 1);
  EXPECT_TRUE(meter.was_raised());
  EXPECT_DOUBLE_EQ(meter.peak_flops_per_second(), 150);
  EXPECT_DOUBLE_EQ(meter.add_step(75, 1), 0.5);
}

// A result that comes late makes the next step look short.
TEST(PeakMeter, ShortStretchesDoNotRaiseIt) {
  PeakMeter meter(100, false);
  for (int i = 0; i < 100; ++i) {
    EXPECT_LE(meter.add_step(1, 0.02), 1);   // 50 per second
    EXPECT_LE(meter.add_step(1, 0.005), 1);  // 200
  }
  EXPECT_FALSE(meter.was_raised());
  EXPECT_DOUBLE_EQ(meter.peak_flops_per_second(), 100);
}

TEST(PeakMeter, AFixedOneStays) {
  PeakMeter meter(100, true);
  for (int i = 0; i < 20; ++i) EXPECT_DOUBLE_EQ(meter.add_step(150, 1), 1.5);
  EXPECT_FALSE(meter.reach(200));
  EXPECT_DOUBLE_EQ(meter.peak_flops_per_second(), 100);
}

TEST(PeakMeter, WithoutAPeakThereIsNoMfu) {
  PeakMeter meter;
  EXPECT_EQ(meter.add_step(1, 1), 0);
  EXPECT_FALSE(meter.reach(5));
}

}  // namespace
}  // namespace tutti::train
