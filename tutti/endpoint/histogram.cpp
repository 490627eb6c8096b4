#include "tutti/endpoint/histogram.h"

#include <algorithm>
#include <utility>

namespace tutti::endpoint {
namespace {

Histogram empty_histogram(std::vector<double> bounds) {
  Histogram out;
  out.counts.resize(bounds.size() + 1);
  out.bounds = std::move(bounds);
  return out;
}

}  // namespace

Histogram first_token_histogram() {
  return empty_histogram({0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                          0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160});
}

Histogram between_tokens_histogram() {
  return empty_histogram(
      {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10});
}

Histogram request_histogram() {
  return empty_histogram(
      {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480});
}

void Histogram::add(double value) {
  const auto at = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[static_cast<size_t>(at)];
  sum += value;
  ++count;
}

}  // namespace tutti::endpoint
