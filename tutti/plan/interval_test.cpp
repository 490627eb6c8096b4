#include "tutti/plan/interval.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/plan/constants.h"

namespace tutti::plan {
namespace {

// Steps of many shares with errors of exactly two standard deviations.
std::vector<StepError> errors_of(double products, double rest) {
  std::vector<StepError> out;
  for (int tenth = 0; tenth <= 10; ++tenth) {
    const double p = 0.1 * tenth;
    const double size = std::hypot(p * products, (1 - p) * rest);
    out.push_back({tenth % 2 == 0 ? size : -size, p, 1});
  }
  return out;
}

TEST(Interval, BothDeviationsAreRecovered) {
  EXPECT_NEAR(estimate_rest_ratio(errors_of(0.05, 0.2)), 4, 1e-9);
  EXPECT_NEAR(interval_of(errors_of(0.05, 0.2), 4), 0.05, 1e-12);
  EXPECT_NEAR(error_growth(4, 0.5), std::hypot(0.5, 2), 1e-12);
  EXPECT_EQ(error_growth(4, 1), 1);
  EXPECT_EQ(error_growth(0, 0.3), 1);
}

TEST(Interval, RestRatioIsBounded) {
  EXPECT_EQ(estimate_rest_ratio(errors_of(0.2, 0.05)), 1);
  EXPECT_EQ(estimate_rest_ratio(errors_of(0, 0.2)), 10);
}

// A single outlier does not decide.
TEST(Interval, FarErrorsCountAsTheAssumedInterval) {
  std::vector<StepError> errors = errors_of(0.05, 0.2);
  errors[2].log_error = 3;
  const double ratio = estimate_rest_ratio(errors);
  errors[2].log_error = kAssumedInterval;
  EXPECT_DOUBLE_EQ(estimate_rest_ratio(errors), ratio);
}

TEST(Interval, EqualSharesDetermineNothing) {
  EXPECT_EQ(estimate_rest_ratio({{0.1, 0.7, 1}, {0.2, 0.7, 1}}), 0);
  EXPECT_EQ(estimate_rest_ratio({}), 0);
}

TEST(Interval, HoldsFourFifthsOfTheWeight) {
  std::vector<StepError> errors;
  for (int i = 1; i <= 10; ++i) errors.push_back({0.01 * i, 1, 1});
  EXPECT_DOUBLE_EQ(interval_of(errors, 0), 0.08);
  errors[9].weight = 4;  // of 13
  EXPECT_DOUBLE_EQ(interval_of(errors, 0), 0.1);
  EXPECT_EQ(interval_of({}, 0), kAssumedInterval);
}

}  // namespace
}  // namespace tutti::plan
