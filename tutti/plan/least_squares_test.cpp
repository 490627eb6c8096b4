#include "tutti/plan/least_squares.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::plan {
namespace {

// y = a exp(-b x) + c at ten exact points.
TEST(LeastSquares, FindsTheParametersOfExactData) {
  const auto residuals = [](const std::vector<double>& p) {
    std::vector<double> out;
    for (int i = 0; i < 10; ++i) {
      const double x = 0.3 * i;
      out.push_back(p[0] * std::exp(-p[1] * x) + p[2] - (3 * std::exp(-1.5 * x) + 0.25));
    }
    return out;
  };
  const std::vector<double> found =
      fit_least_squares(residuals, {1, 0.5, 0}, {0, 0, -1}, {10, 10, 1});
  EXPECT_NEAR(found[0], 3, 1e-6);
  EXPECT_NEAR(found[1], 1.5, 1e-6);
  EXPECT_NEAR(found[2], 0.25, 1e-6);
}

TEST(LeastSquares, StaysInsideItsBounds) {
  const auto residuals = [](const std::vector<double>& p) {
    return std::vector<double>{p[0] - 5, p[1] - 2};
  };
  const std::vector<double> found = fit_least_squares(residuals, {0, 0}, {0, 0}, {3, 10});
  EXPECT_DOUBLE_EQ(found[0], 3);
  EXPECT_NEAR(found[1], 2, 1e-9);
}

}  // namespace
}  // namespace tutti::plan
