// Histograms of the durations that an engine measures, with the bounds of vLLM's metrics.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::endpoint {

// How often values fell into (bounds[i-1], bounds[i]]; the last count is of what is above.
struct Histogram {
  std::vector<double> bounds;
  std::vector<int64_t> counts;  // bounds.size() + 1
  double sum = 0;
  int64_t count = 0;

  void add(double value);
};

// Without values.
Histogram first_token_histogram();
Histogram between_tokens_histogram();
Histogram request_histogram();

}  // namespace tutti::endpoint
