// Order statistics of measurements.
#pragma once

#include <vector>

namespace tutti {

// The value below which the share `at` (0 to 1) of `values` lies, between two of them by
// interpolation: 0 the least, 0.5 the median. There must be one.
double quantile(std::vector<double> values, double at);

// Half the distance between the quartiles, over the median: how far measurements spread, whatever
// a few outliers do.
double relative_spread(const std::vector<double>& values);

}  // namespace tutti
