// Reference of LayerNorm and RMSNorm for tests: plain f64 loops over N rows of H columns.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {

using Values = std::vector<double>;
inline constexpr double kNormEpsilon = 1e-5;

struct NormStatistics {
  double mean = 0;
  double rstd = 0;
};

inline NormStatistics norm_statistics(NormKind kind, const double* x, int64_t h) {
  double mean = 0;
  if (kind == NormKind::layer) {
    for (int64_t j = 0; j < h; ++j) mean += x[j] / static_cast<double>(h);
  }
  double variance = 0;
  for (int64_t j = 0; j < h; ++j) variance += (x[j] - mean) * (x[j] - mean);
  return {mean, 1 / std::sqrt(variance / static_cast<double>(h) + kNormEpsilon)};
}

inline Values norm_reference(NormKind kind, const Values& x, const Values& weight,
                             const Values& bias) {
  const auto h = static_cast<int64_t>(weight.size());
  Values y(x.size());
  for (size_t first = 0; first < x.size(); first += weight.size()) {
    const NormStatistics s = norm_statistics(kind, x.data() + first, h);
    for (size_t j = 0; j < weight.size(); ++j) {
      y[first + j] = (x[first + j] - s.mean) * s.rstd * weight[j] + (bias.empty() ? 0 : bias[j]);
    }
  }
  return y;
}

struct NormGradients {
  Values x;
  Values weight;
  Values bias;
};

inline NormGradients norm_gradients(NormKind kind, const Values& x, const Values& weight,
                                    const Values& dy) {
  const size_t h = weight.size();
  NormGradients d{Values(x.size()), Values(h, 0.0), Values(h, 0.0)};
  for (size_t first = 0; first < x.size(); first += h) {
    const NormStatistics s = norm_statistics(kind, x.data() + first, static_cast<int64_t>(h));
    double mean_g = 0;
    double mean_gx = 0;
    for (size_t j = 0; j < h; ++j) {
      const double x_hat = (x[first + j] - s.mean) * s.rstd;
      const double g = dy[first + j] * weight[j];
      mean_g += g / static_cast<double>(h);
      mean_gx += g * x_hat / static_cast<double>(h);
      d.weight[j] += dy[first + j] * x_hat;
      d.bias[j] += dy[first + j];
    }
    if (kind == NormKind::rms) mean_g = 0;
    for (size_t j = 0; j < h; ++j) {
      const double x_hat = (x[first + j] - s.mean) * s.rstd;
      d.x[first + j] = s.rstd * (dy[first + j] * weight[j] - mean_g - x_hat * mean_gx);
    }
  }
  return d;
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline Values plus(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// The saved mean or rstd of a forward call.
inline TestMatrix saved_statistics(NormKind kind, const TestMatrix& x,
                                   double NormStatistics::*member) {
  TestMatrix out = poisoned_vector(x.rows());
  const Values values = x.values();
  for (int64_t r = 0; r < x.rows(); ++r) {
    out.set(0, r, norm_statistics(kind, values.data() + r * x.cols(), x.cols()).*member);
  }
  return out;
}

}  // namespace tutti::engine::testing
