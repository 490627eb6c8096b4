// Downsampling, smoothing and statistics of long series before plotting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::report {

// Indices of at most `most` points (most >= 4) that draw the same curve: the first and the last,
// and of every equal part the smallest and the largest value, so no spike is lost. Non-finite
// values count only where a whole part has no other. Ascending.
std::vector<size_t> downsample(const std::vector<double>& y, size_t most);

// Exponential mean over about `span` points, without the bias of a start at zero:
//   s[i] = sum_j a (1 - a)^(i - j) y[j] / sum_j a (1 - a)^(i - j), a = 2 / (span + 1)
// Non-finite values are passed over and stay as they are.
std::vector<double> smooth(const std::vector<double>& y, double span);

// The q-quantile (0 to 1) of the finite values, linear between neighbours; NaN without any.
double quantile(std::vector<double> values, double q);

// The mean of the finite values; NaN without any.
double mean(const std::vector<double>& values);

}  // namespace tutti::report
