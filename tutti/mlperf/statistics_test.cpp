#include "tutti/mlperf/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::mlperf {
namespace {

TEST(Statistics, OlympicMeanDropsOneOfEachEnd) {
  EXPECT_EQ(olympic_mean({1, 100, 2}), 2);
  EXPECT_EQ(olympic_mean({4, 1, 3, 100, 2}), 3);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(population_deviation({2, 4}), 1);
}

TEST(Statistics, StudentIsCauchyAndClosedFormsForFewDegrees) {
  for (const double t : {-7.0, -1.0, -0.3, 0.0, 0.5, 2.0, 30.0}) {
    EXPECT_NEAR(student_cdf(t, 1), 0.5 + std::atan(t) / M_PI, 1e-12) << t;
    EXPECT_NEAR(student_cdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-12) << t;
    EXPECT_NEAR(student_cdf(t, 9) + student_cdf(-t, 9), 1, 1e-12);
  }
  // Tabulated 5% points.
  EXPECT_NEAR(student_quantile(0.05, 3), -2.3533634348, 1e-9);
  EXPECT_NEAR(student_quantile(0.05, 24), -1.7108820799, 1e-9);
  EXPECT_NEAR(student_quantile(0.975, 10), 2.2281388520, 1e-9);
}

TEST(Statistics, Interpolation) {
  EXPECT_EQ(interpolate(15, 10, 100, 20, 200), 150);
  EXPECT_EQ(interpolate(10, 10, 100, 10, 100), 100);
}

TEST(Statistics, OrderOfFewRunsIsCountedExactly) {
  // 20 labellings of 3 and 3; only the observed one and its mirror lie as far apart.
  const OrderTest far = test_order({10, 11, 12}, {1, 2, 3});
  EXPECT_EQ(far.labellings, 20);
  EXPECT_DOUBLE_EQ(far.chance, 0.1);
  EXPECT_DOUBLE_EQ(far.ratio, 5.5);
  EXPECT_LT(far.low, 5.5);
  EXPECT_GT(far.high, 5.5);
  const OrderTest same = test_order({5, 5, 5}, {5, 5, 5});
  EXPECT_DOUBLE_EQ(same.chance, 1);
  EXPECT_DOUBLE_EQ(same.low, 1);
  EXPECT_DOUBLE_EQ(same.high, 1);
}

TEST(Statistics, OrderOfManyRunsIsSampledAndRepeatable) {
  std::vector<double> a;
  std::vector<double> b;
  for (int i = 0; i < 15; ++i) {
    a.push_back(100 + i);
    b.push_back(104 + i);
  }
  const OrderTest one = test_order(a, b);
  const OrderTest two = test_order(a, b);
  EXPECT_EQ(one.labellings, 100'000);
  EXPECT_EQ(one.chance, two.chance);
  EXPECT_EQ(one.low, two.low);
  // The same question by the t-test: t = -4 / (4.472 * sqrt(2 / 15)), 28 degrees of freedom.
  EXPECT_NEAR(one.chance, 2 * student_cdf(-4 / (4.47213595 * std::sqrt(2.0 / 15)), 28), 0.005);
}

TEST(Statistics, WeightedMedian) {
  EXPECT_DOUBLE_EQ(weighted_median({{3, 1}, {1, 1}, {2, 1}}), 2);
  EXPECT_DOUBLE_EQ(weighted_median({{1, 1}, {2, 1}, {3, 1}, {4, 1}}), 2.5);  // as median()
  EXPECT_DOUBLE_EQ(weighted_median({{1, 270}, {9, 18}, {9, 18}, {9, 18}}), 1);
  EXPECT_DOUBLE_EQ(weighted_median({{7, 0.1}}), 7);
}

TEST(Statistics, TheLeastChanceOfATest) {
  EXPECT_DOUBLE_EQ(test_order({1, 2, 3}, {4, 5, 6}).least_chance, 2.0 / 20);
  EXPECT_DOUBLE_EQ(test_order({1, 2, 3}, {4, 5, 6}).chance, 2.0 / 20);
  EXPECT_DOUBLE_EQ(test_order({1, 2, 3}, {4, 5, 6, 7}).least_chance, 1.0 / 35);
  EXPECT_GT(test_order({1}, {4, 5, 6}).least_chance, kSignificant);
}

}  // namespace
}  // namespace tutti::mlperf
