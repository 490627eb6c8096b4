#include "tutti/report/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/quantile.h"

namespace tutti::report {

std::vector<size_t> downsample(const std::vector<double>& y, size_t most) {
  TUTTI_CHECK(most >= 4, "downsampling to {} points", most);
  std::vector<size_t> kept;
  if (y.size() <= most) {
    kept.resize(y.size());
    for (size_t i = 0; i < kept.size(); ++i) kept[i] = i;
    return kept;
  }
  const size_t inner = y.size() - 2;
  const size_t parts = (most - 2) / 2;
  kept.push_back(0);
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = 1 + inner * part / parts;
    const size_t end = 1 + inner * (part + 1) / parts;
    size_t low = begin;
    size_t high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(y[i])) continue;
      if (!std::isfinite(y[low]) || y[i] < y[low]) low = i;
      if (!std::isfinite(y[high]) || y[i] > y[high]) high = i;
    }
    kept.push_back(std::min(low, high));
    if (low != high) kept.push_back(std::max(low, high));
  }
  kept.push_back(y.size() - 1);
  return kept;
}

std::vector<double> smooth(const std::vector<double>& y, double span) {
  const double a = 2 / (std::max(1.0, span) + 1);
  std::vector<double> out = y;
  double sum = 0;
  double weight = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(y[i])) continue;
    sum = (1 - a) * sum + a * y[i];
    weight = (1 - a) * weight + a;
    out[i] = sum / weight;
  }
  return out;
}

double quantile(std::vector<double> values, double q) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return tutti::quantile(std::move(values), std::clamp(q, 0.0, 1.0));
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  double count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tutti::report
