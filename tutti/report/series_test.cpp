#include "tutti/report/series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tutti::report {
namespace {

TEST(Downsample, KeepsSpikesAndEnds) {
  std::vector<double> y(100001);
  for (size_t i = 0; i < y.size(); ++i) y[i] = std::sin(static_cast<double>(i) / 900);
  y[54321] = 40;
  y[77777] = -40;
  y[3] = std::nan("");
  const std::vector<size_t> kept = downsample(y, 1000);
  EXPECT_LE(kept.size(), 1000U);
  EXPECT_GT(kept.size(), 900U);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  EXPECT_EQ(std::adjacent_find(kept.begin(), kept.end()), kept.end());
  for (const size_t must : {size_t{0}, size_t{54321}, size_t{77777}, y.size() - 1}) {
    EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), must)) << must;
  }
}

TEST(Downsample, ShortSeriesStayWhole) {
  EXPECT_EQ(downsample({}, 4).size(), 0U);
  EXPECT_EQ(downsample({1, 2, 3, 4}, 4), (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(Smooth, IsAWeightedMean) {
  // a = 2 / (3 + 1): weights 1/2, 1/4, 1/8 over their sum 7/8.
  const std::vector<double> out = smooth({8, 4, 2}, 3);
  EXPECT_DOUBLE_EQ(out[0], 8);
  EXPECT_DOUBLE_EQ(out[1], (4 / 2.0 + 8 / 4.0) / 0.75);
  EXPECT_DOUBLE_EQ(out[2], (2 / 2.0 + 4 / 4.0 + 8 / 8.0) / 0.875);
  const std::vector<double> gap = smooth({1, std::nan(""), 1}, 10);
  EXPECT_TRUE(std::isnan(gap[1]));
  EXPECT_DOUBLE_EQ(gap[2], 1);
}

TEST(Quantile, IsLinearBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(quantile({4, 1, std::nan(""), 3, 2}, 0), 1);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
  EXPECT_TRUE(std::isnan(mean({std::nan("")})));
  EXPECT_DOUBLE_EQ(mean({1, std::nan(""), 3}), 2);
}

}  // namespace
}  // namespace tutti::report
