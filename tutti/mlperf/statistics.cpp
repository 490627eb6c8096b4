#include "tutti/mlperf/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tutti/base/check.h"
#include "tutti/base/rng.h"

namespace tutti::mlperf {
namespace {

constexpr int kResamples = 10'000;
constexpr int64_t kMostLabellings = 200'000;
constexpr int64_t kRandomLabellings = 100'000;
constexpr uint64_t kSeed = 20'240'601;

// The continued fraction of the incomplete beta function, by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto not_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / not_zero(1 - (a + b) * x / (a + 1));
  double h = d;
  for (int m = 1; m <= 10'000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / not_zero(1 + even * d);
    c = not_zero(1 + even / c);
    h *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / not_zero(1 + odd * d);
    c = not_zero(1 + odd / c);
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return h;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

// Number of ways to choose k of n, no more than `most` + 1.
int64_t choices(int64_t n, int64_t k, int64_t most) {
  double count = 1;
  for (int64_t i = 1; i <= k; ++i) {
    count = count * static_cast<double>(n - k + i) / static_cast<double>(i);
  }
  return count > static_cast<double>(most) ? most + 1 : std::llround(count);
}

double resampled_mean(const std::vector<double>& values, uint64_t key, uint64_t first) {
  double sum = 0;
  const auto n = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[static_cast<size_t>(random_uniform(key, first + i) * n)];
  }
  return sum / n;
}

// Counts labellings; a labelling is described by the sum of the values that it calls a.
struct Counter {
  double total = 0;
  double size_a = 0;
  double size_b = 0;
  double observed = 0;
  int64_t tried = 0;
  int64_t as_far = 0;

  double difference(double sum_a) const { return sum_a / size_a - (total - sum_a) / size_b; }
  void take(double sum_a) {
    ++tried;
    // Equal sums in another order differ by rounding.
    const double slack = 1e-9 * std::abs(total) / (size_a + size_b);
    if (std::abs(difference(sum_a)) >= std::abs(observed) - slack) ++as_far;
  }
};

void take_all(const std::vector<double>& values, size_t k, Counter& counter) {
  std::vector<size_t> chosen(k);
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  while (true) {
    double sum = 0;
    for (const size_t i : chosen) sum += values[i];
    counter.take(sum);
    size_t at = k;
    while (at > 0 && chosen[at - 1] == values.size() - k + at - 1) --at;
    if (at == 0) return;
    ++chosen[at - 1];
    for (size_t i = at; i < k; ++i) chosen[i] = chosen[i - 1] + 1;
  }
}

void take_random(const std::vector<double>& values, size_t k, Counter& counter) {
  const uint64_t key = stream_key(kSeed, "labels");
  for (int64_t round = 0; round < kRandomLabellings; ++round) {
    double sum = 0;
    for (size_t i = 0; i < k; ++i) {
      sum += values[permute_index(i, values.size(), key + static_cast<uint64_t>(round))];
    }
    counter.take(sum);
  }
}

}  // namespace

double mean(const std::vector<double>& values) {
  TUTTI_CHECK(!values.empty(), "the mean of nothing");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double population_deviation(const std::vector<double>& values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double median(std::vector<double> values) {
  TUTTI_CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double weighted_median(std::vector<WeightedValue> values) {
  TUTTI_CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end(),
            [](const WeightedValue& a, const WeightedValue& b) { return a.value < b.value; });
  double total = 0;
  for (const WeightedValue& value : values) total += value.weight;
  double below = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    below += values[i].weight;
    if (2 * below > total) return values[i].value;
    if (2 * below == total && i + 1 < values.size()) {
      return (values[i].value + values[i + 1].value) / 2;
    }
  }
  return values.back().value;
}

double olympic_mean(std::vector<double> values) {
  TUTTI_CHECK(values.size() >= 3, "an olympic mean of {} values", values.size());
  std::sort(values.begin(), values.end());
  return mean({values.begin() + 1, values.end() - 1});
}

double logarithmic_mean(double p, double q) { return p == q ? p : (p - q) / std::log(p / q); }

double variation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2) return 0;
  return population_deviation(values) * std::sqrt(n / (n - 1)) / mean(values);
}

RatioInterval ratio_interval(const std::vector<double>& a, const std::vector<double>& b,
                             double confidence) {
  TUTTI_CHECK(a.size() > 1 && b.size() > 1, "an interval of {} and {} values", a.size(), b.size());
  struct Side {
    double mean = 0, error = 0, freedom = 0;  // of logarithms; error: squared, of the mean
  };
  const auto side = [](const std::vector<double>& values) {
    std::vector<double> logs;
    for (const double value : values) logs.push_back(std::log(value));
    const auto n = static_cast<double>(values.size());
    const double deviation = population_deviation(logs);
    return Side{mean(logs), deviation * deviation / (n - 1), n - 1};
  };
  const Side x = side(a);
  const Side y = side(b);
  const double difference = x.mean - y.mean;
  const double error = x.error + y.error;
  RatioInterval interval;
  interval.ratio = interval.low = interval.high = std::exp(difference);
  // Equal values differ by the rounding of their sums.
  if (error < 1e-24) return interval;
  const double freedom =
      error * error / (x.error * x.error / x.freedom + y.error * y.error / y.freedom);
  const double width = student_quantile((1 + confidence) / 2, freedom) * std::sqrt(error);
  interval.low = std::exp(difference - width);
  interval.high = std::exp(difference + width);
  return interval;
}

double student_cdf(double t, double freedom) {
  const double tail = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2;
  return t < 0 ? tail : 1 - tail;
}

double student_quantile(double probability, double freedom) {
  double low = -1;
  double high = 1;
  while (student_cdf(low, freedom) > probability) low *= 2;
  while (student_cdf(high, freedom) < probability) high *= 2;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (student_cdf(middle, freedom) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

double interpolate(double x, double x0, double y0, double x1, double y1) {
  return x1 == x0 ? y0 : y0 + (y1 - y0) / (x1 - x0) * (x - x0);
}

OrderTest test_order(const std::vector<double>& a, const std::vector<double>& b) {
  OrderTest test;
  test.ratio = mean(a) / mean(b);
  std::vector<double> ratios(kResamples);
  const uint64_t key_a = stream_key(kSeed, "bootstrap", "a");
  const uint64_t key_b = stream_key(kSeed, "bootstrap", "b");
  for (size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] = resampled_mean(a, key_a, i * a.size()) / resampled_mean(b, key_b, i * b.size());
  }
  std::sort(ratios.begin(), ratios.end());
  test.low = ratios[kResamples / 40];
  test.high = ratios[kResamples - 1 - kResamples / 40];

  std::vector<double> all = a;
  all.insert(all.end(), b.begin(), b.end());
  Counter counter;
  counter.total = std::accumulate(all.begin(), all.end(), 0.0);
  counter.size_a = static_cast<double>(a.size());
  counter.size_b = static_cast<double>(b.size());
  counter.observed = counter.difference(std::accumulate(a.begin(), a.end(), 0.0));
  const auto n = static_cast<int64_t>(all.size());
  const auto k = static_cast<int64_t>(a.size());
  if (choices(n, k, kMostLabellings) <= kMostLabellings) take_all(all, a.size(), counter);
  else take_random(all, a.size(), counter);
  test.labellings = counter.tried;
  // As far apart as the observed labels is at least themselves, and of equal groups their mirror.
  test.least_chance =
      (a.size() == b.size() ? 2.0 : 1.0) / static_cast<double>(choices(n, k, kMostLabellings));
  test.chance = static_cast<double>(counter.as_far) / static_cast<double>(counter.tried);
  return test;
}

}  // namespace tutti::mlperf
