// The constants of a machine, from the operations that a real run recorded (`tutti train --trace`).
//
// Operations are grouped by name, sizes and bytes, each group's time the median of its executions;
// groups of one model of cost are fitted together by least squares of ln(predicted / measured),
// weighted with the root of their share of the step:
//   products    gemm_ratio, gemm_side_count, gemm_depth_count of cost.h, with launch_microseconds
//   attention   attention_ratio and attention_backward_ratio
//   the rest    one share of the memory bandwidth per operation name (Constants::operation_ratios)
// What of a step lies between operations becomes part of the launch, per operation. The held-out
// error is that of the step when each group is predicted by a fit without it: with its sign, so
// that groups above and below balance as they do in a step.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

struct TracedOperation {
  std::string name;
  std::array<int64_t, 6> dims{};
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};

struct RunTrace {
  std::vector<TracedOperation> operations;  // of all steps, in order
  std::vector<double> step_seconds;
};

// Of a trace.json. Throws corrupt naming what is missing, such as a trace of another program.
RunTrace parse_trace(std::string_view text, const std::string& origin);

// Rates and sizes that the machine does not exceed, measured.
struct MachineCeilings {
  double bf16_flops = 0;
  double f32_flops = 0;
  double bytes_per_second = 0;  // a copy: read and written
  double memory_bytes = 0;
};

// A system of one such machine; one chip a node, nothing beside it.
catalog::System machine_system(const std::string& name, const MachineCeilings& ceilings);

struct CalibratedGroup {
  std::string name;
  std::array<int64_t, 6> dims{};
  double calls_per_step = 0;
  double measured_seconds = 0;  // of a call
  double fitted_seconds = 0;
  double held_out_seconds = 0;  // by a fit without this group; products only, else as fitted
};

struct Calibration {
  Constants constants;  // error: held out
  double measured_step_seconds = 0;
  double least_step_seconds = 0;
  double most_step_seconds = 0;
  double fitted_step_seconds = 0;       // by Predictor::step with the constants
  std::vector<CalibratedGroup> groups;  // longest share of the step first
};

// Recorded steps further apart than this share of their median were disturbed.
inline constexpr double kQuietSpread = 0.10;
double step_spread(const Calibration& calibration);

// `system`: machine_system of `name`. `peak_bytes`: the run's largest resident set without its copy
// for checkpoints, 0: not known.
Calibration calibrate(const RunTrace& trace, const spec::Recipe& recipe,
                      const catalog::System& system, double peak_bytes);

// The files that make the machine a system of the catalog: paths below a catalog folder, contents.
std::vector<std::pair<std::string, std::string>> machine_files(const std::string& name,
                                                               const MachineCeilings& ceilings,
                                                               const Constants& constants,
                                                               const std::string& source,
                                                               const std::string& date);

Json to_json(const Calibration& calibration);

}  // namespace tutti::plan
