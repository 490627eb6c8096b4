// The statistics of scores: olympic means, the t-test against reference runs, permutations.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::mlperf {

double mean(const std::vector<double>& values);                  // of one or more
double population_deviation(const std::vector<double>& values);  // divides by n
double median(std::vector<double> values);                       // of one or more

struct WeightedValue {
  double value = 0;
  double weight = 0;  // above 0
};

// The value below and above which lies half of the weight; between two, their mean. Of one or more.
double weighted_median(std::vector<WeightedValue> values);

// The mean without the smallest and the largest of three or more values.
double olympic_mean(std::vector<double> values);

// P(T <= t) of Student's distribution with `freedom` degrees of freedom, through the regularised
// incomplete beta function (continued fraction, Numerical Recipes 6.4); absolute error below 1e-12.
double student_cdf(double t, double freedom);

// The t with P(T <= t) = probability, in (0, 1).
double student_quantile(double probability, double freedom);

// Piecewise linear: the value at x between (x0, y0) and (x1, y1).
double interpolate(double x, double x0, double y0, double x1, double y1);

// L(p, q) = (p - q) / ln(p / q), p where the two are equal; of positive numbers.
double logarithmic_mean(double p, double q);

// Sample deviation (of n - 1) over mean; 0 of a single value.
double variation(const std::vector<double>& values);

struct RatioInterval {
  double ratio = 1;  // of the geometric means
  double low = 1;
  double high = 1;
};

// How often larger are values of a than those of b? The interval is that of Welch's t for the
// difference of the means of their logarithms (Biometrika 34, 1947), which for few values keeps its
// confidence where percentiles of a bootstrap do not. Two positive values or more of each.
RatioInterval ratio_interval(const std::vector<double>& a, const std::vector<double>& b,
                             double confidence);

inline constexpr double kSignificant = 0.05;

struct OrderTest {
  double ratio = 1;  // mean of a / mean of b
  double low = 1;    // 95% confidence interval of the ratio, bootstrap
  double high = 1;
  double chance = 1;       // probability that random labels put them apart as far or further
  int64_t labellings = 0;  // tried; all there are when they are few
  double least_chance =
      1;  // that any values of so many could have; from kSignificant on: too few to test
};

// Is the order of the means of a and b more than noise between runs? The interval is the bootstrap
// percentile interval (10,000 resamples); the chance is a two-sided permutation test of the
// difference of means, over all labellings when there are at most 200,000, else 100,000 random
// ones. Same values, same answer: random numbers come from a fixed seed. Needs one value or more of
// each.
OrderTest test_order(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tutti::mlperf
