#include "tutti/base/quantile.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Quantile, OfOneValueIsThatValue) {
  for (const double at : {0.0, 0.3, 1.0}) EXPECT_EQ(quantile({4}, at), 4);
}

TEST(Quantile, InterpolatesBetweenNeighbours) {
  const std::vector<double> values = {5, 1, 3, 2, 4};
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 1), 5);
  EXPECT_EQ(quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 0.1), 1.4);
  EXPECT_DOUBLE_EQ(quantile({1, 2}, 0.5), 1.5);
}

TEST(Quantile, SpreadDoesNotSeeAnOutlier) {
  EXPECT_EQ(relative_spread({7, 7, 7, 7, 900}), 0);
  EXPECT_DOUBLE_EQ(relative_spread({9, 10, 11}), 0.05);
}

}  // namespace
}  // namespace tutti
