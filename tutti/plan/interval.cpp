#include "tutti/plan/interval.h"

#include <algorithm>
#include <cmath>

#include "tutti/plan/constants.h"

namespace tutti::plan {
namespace {

constexpr double kStated = 0.8;
constexpr double kMostRatio = 10;

}  // namespace

double estimate_rest_ratio(const std::vector<StepError>& errors) {
  double pp = 0, pr = 0, rr = 0, p_error = 0, r_error = 0;
  for (const StepError& error : errors) {
    const double p = error.products_share * error.products_share;
    const double r = (1 - error.products_share) * (1 - error.products_share);
    const double size = std::min(std::abs(error.log_error), kAssumedInterval);
    pp += error.weight * p * p;
    pr += error.weight * p * r;
    rr += error.weight * r * r;
    p_error += error.weight * p * size * size;
    r_error += error.weight * r * size * size;
  }
  const double determinant = pp * rr - pr * pr;
  if (determinant <= 1e-9 * pp * rr) return 0;
  const double products = p_error * rr - r_error * pr;  // variances, times the determinant
  const double rest = r_error * pp - p_error * pr;
  if (rest <= products) return 1;
  return products * kMostRatio * kMostRatio <= rest ? kMostRatio : std::sqrt(rest / products);
}

double error_growth(double rest_ratio, double products_share) {
  return rest_ratio > 0 ? std::hypot(products_share, rest_ratio * (1 - products_share)) : 1;
}

double interval_of(const std::vector<StepError>& errors, double rest_ratio) {
  struct Sized {
    double size = 0;  // of a step of products alone
    double weight = 0;
  };
  std::vector<Sized> all;
  double total = 0;
  for (const StepError& error : errors) {
    const double growth = error_growth(rest_ratio, error.products_share);
    all.push_back({std::abs(error.log_error) / growth, error.weight});
    total += error.weight;
  }
  std::sort(all.begin(), all.end(), [](const Sized& a, const Sized& b) { return a.size < b.size; });
  double below = 0;
  for (const Sized& one : all) {
    below += one.weight;
    if (below >= kStated * total) return one.size;
  }
  return all.empty() ? kAssumedInterval : all.back().size;
}

}  // namespace tutti::plan
