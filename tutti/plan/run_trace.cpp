#include "tutti/plan/run_trace.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/json.h"

namespace tutti::plan {

RunTrace parse_trace(std::string_view text, const std::string& origin) {
  RunTrace trace;
  std::map<double, size_t> ends;  // of the steps
  std::vector<double> starts;     // of the operations
  const Json json = parse_json(text, origin);
  for (const Json& event : json_get<Json>(json, "traceEvents", origin)) {
    const std::string category = event.value("cat", "");
    const double seconds = event.value("dur", 0.0) * 1e-6;
    const double start = event.value("ts", 0.0) * 1e-6;
    if (category == "step") {
      ends[start + seconds] = trace.step_seconds.size();
      const Json args = event.value("args", Json::object());
      trace.step_seconds.push_back(seconds - args.value("waited_seconds", 0.0));
    }
    if (category != "operation") continue;
    TracedOperation operation;
    starts.push_back(start);
    operation.name = json_get<std::string>(event, "name", origin);
    const Json args = json_get<Json>(event, "args", origin);
    const Json dims = json_get<Json>(args, "dims", origin);
    for (size_t i = 0; i < std::min(dims.size(), operation.dims.size()); ++i) {
      operation.dims[i] = dims[i].get<int64_t>();
    }
    operation.flops = json_get<double>(args, "flops", origin);
    operation.bytes = json_get<double>(args, "bytes", origin);
    operation.seconds = seconds;
    trace.operations.push_back(std::move(operation));
  }
  if (trace.step_seconds.empty() || trace.operations.empty()) {
    fail(ErrorKind::corrupt, "{}: no recorded steps; record some with tutti train RECIPE --trace 8",
         origin);
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto step = ends.upper_bound(starts[i]);
    if (step == ends.end()) {
      fail(ErrorKind::corrupt, "{}: operation {} starts after the last step", origin, i);
    }
    trace.operations[i].step = step->second;
  }
  return trace;
}

double step_spread(const RunTrace& trace) {
  std::vector<double> seconds = trace.step_seconds;
  std::sort(seconds.begin(), seconds.end());
  return (seconds.back() - seconds.front()) / seconds[seconds.size() / 2];
}

RunTrace quieter_half(const RunTrace& trace) {
  std::vector<size_t> order(trace.step_seconds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(trace.step_seconds[a], a) < std::pair(trace.step_seconds[b], b);
  });
  order.resize((order.size() + 1) / 2);
  std::sort(order.begin(), order.end());
  RunTrace quiet;
  std::map<size_t, size_t> number;  // new by old
  for (const size_t step : order) {
    number[step] = quiet.step_seconds.size();
    quiet.step_seconds.push_back(trace.step_seconds[step]);
  }
  for (const TracedOperation& operation : trace.operations) {
    const auto kept = number.find(operation.step);
    if (kept == number.end()) continue;
    quiet.operations.push_back(operation);
    quiet.operations.back().step = kept->second;
  }
  return quiet;
}

}  // namespace tutti::plan
