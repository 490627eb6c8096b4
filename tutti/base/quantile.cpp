#include "tutti/base/quantile.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/check.h"

namespace tutti {

double quantile(std::vector<double> values, double at) {
  TUTTI_CHECK(!values.empty() && at >= 0 && at <= 1, "quantile {} of {} values", at, values.size());
  std::sort(values.begin(), values.end());
  const double position = at * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(std::floor(position));
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (position - static_cast<double>(low)) * (values[high] - values[low]);
}

double relative_spread(const std::vector<double>& values) {
  const double middle = quantile(values, 0.5);
  if (middle == 0) return 0;
  return (quantile(values, 0.75) - quantile(values, 0.25)) / 2 / std::abs(middle);
}

}  // namespace tutti
