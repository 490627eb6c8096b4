#include "tutti/plan/chip_limits.h"

#include <gtest/gtest.h>

#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

// The time that software adds to a product is the same on other chips.
TEST(ChipLimits, SoftwareOverheadOfProductsIsTransferred) {
  const double here = 1 / (1 / 0.8 + 0.2);
  EXPECT_DOUBLE_EQ(carried_product_ratio(here, 0.8, 0.5), 1 / (1 / 0.5 + 0.2));
  EXPECT_DOUBLE_EQ(carried_product_ratio(here, 0.8, 0.9), 1 / (1 / 0.9 + 0.2));
  EXPECT_NEAR(carried_product_ratio(carried_product_ratio(here, 0.8, 0.5), 0.5, 0.8), here, 1e-12);
  // Nothing is added if a fit exceeds the best measurement.
  EXPECT_DOUBLE_EQ(carried_product_ratio(0.82, 0.8, 0.5), 0.5);
}

TEST(ChipLimits, ExponentialsLimitAttention) {
  const ChipLimits hopper = limits_of(shipped().chip("H100"));
  const ChipLimits blackwell = limits_of(shipped().chip("B200"));
  const ChipLimits ultra = limits_of(shipped().chip("B300"));
  EXPECT_NEAR(hopper.softmax, 0.5, 0.01);
  EXPECT_GT(blackwell.softmax, 1.5 * hopper.softmax);
  // Ultra computes twice as many exponentials; with the products of B200.
  EXPECT_GT(attention_gain(blackwell, ultra, false), 1.2);
  EXPECT_GT(attention_gain(blackwell, ultra, false), attention_gain(blackwell, ultra, true));
  EXPECT_GT(attention_gain(blackwell, ultra, true), 1);
  EXPECT_NEAR(attention_gain(blackwell, ultra, true) * attention_gain(ultra, blackwell, true), 1,
              1e-12);
  // If one chip's are unknown, only the products count.
  ChipLimits other = hopper;
  other.softmax = 0;
  other.product = 0.4;
  EXPECT_DOUBLE_EQ(attention_gain(hopper, other, false), 0.5);
}

TEST(ChipLimits, MeansAreOverTheChipsThatHaveOne) {
  const catalog::Chip& ampere = shipped().chip("A100-80");
  const catalog::Chip& hopper = shipped().chip("H100");
  const ChipLimits mean = mean_limits({&ampere, &hopper});
  EXPECT_DOUBLE_EQ(mean.product, (0.87 + 0.80) / 2);
  EXPECT_DOUBLE_EQ(mean.fp8_product, limits_of(hopper).fp8_product);  // an A100 has none
  EXPECT_EQ(mean_limits({}).product, 0);
}

}  // namespace
}  // namespace tutti::plan
