// The recorded steps of a run (`tutti train --trace`).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::plan {

struct TracedOperation {
  std::string name;
  std::array<int64_t, 6> dims{};
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
  size_t step = 0;  // index into RunTrace::step_seconds
};

struct RunTrace {
  std::vector<TracedOperation> operations;  // of all steps, in order
  std::vector<double> step_seconds;  // without waiting for other ranks, if the trace states it
};

// Parses a trace.json. Throws corrupt naming what is missing, such as for a trace of another
// program.
RunTrace parse_trace(std::string_view text, const std::string& origin);

// The longest step less the shortest, over the median.
double step_spread(const RunTrace& trace);
// Steps with a larger spread were disturbed.
inline constexpr double kQuietSpread = 0.10;

// The steps no longer than the median step, in order.
RunTrace quieter_half(const RunTrace& trace);

}  // namespace tutti::plan
