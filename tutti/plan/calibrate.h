// Calibration: fits the constants of a machine to the operations that a real run recorded (`tutti
// train --trace`).
//
// Operations are grouped by name, sizes and bytes, with the mean time of their executions; groups
// with the same cost model are fitted together by least squares of ln(predicted / measured),
// weighted with the root of their share of the step:
//   products    gemm_ratio, gemm_side_count, gemm_depth_count of cost.h, with launch_microseconds
//   attention   attention_ratio and attention_backward_ratio
//   others      one share of the memory bandwidth per operation name (Constants::operation_ratios)
// Only the faster half of the steps counts: disturbances by other programs are not properties of
// the machine. A separately measured peak does not cap the trace either, since other work may have
// disturbed it: the ceiling becomes the greater of that peak and the rate that the fit gives an
// infinitely large product. Time of a step between operations becomes part of the launch, per
// operation. The held-out error is that of the step when each group is predicted by a fit without
// it: signed, so that positive and negative errors of groups cancel as they do in a step.
//
// Effects that such a trace cannot show are recorded separately: ranks that share the machine,
// which have fewer threads each and less overhead between them, have constants of their own
// (calibrate_ranks); and the rate of the other precision (calibrate_precision). Ranks hide no
// traffic behind work: both use the machine's cores and memory.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/plan/machine.h"
#include "tutti/plan/predict.h"
#include "tutti/plan/run_trace.h"

namespace tutti::plan {

struct CalibratedGroup {
  std::string name;
  std::array<int64_t, 6> dims{};
  double calls_per_step = 0;
  double measured_seconds = 0;  // of a call
  double fitted_seconds = 0;
  double held_out_seconds = 0;  // by a fit without this group; only for products, else as fitted
};

struct Calibration {
  Constants constants;               // error: held out
  MachineCeilings ceilings;          // raised to what the trace shows
  double measured_step_seconds = 0;  // median of the faster half
  double spread = 0;                 // step_spread of all recorded steps
  double least_step_seconds = 0;
  double most_step_seconds = 0;
  double fitted_step_seconds = 0;       // by Predictor::step with the constants
  std::vector<CalibratedGroup> groups;  // longest share of the step first
};

// `peak_bytes`: the run's largest resident set without its copy for checkpoints, 0: unknown. Throws
// unsupported for a precision without a ceiling for its products.
Calibration calibrate(const RunTrace& trace, const spec::Recipe& recipe, const std::string& name,
                      const MachineCeilings& ceilings, double peak_bytes);

// Recording of ranks that compute at the same time (train/tasks/scaling_bench.h).
struct RankRecording {
  spec::Recipe recipe;               // its mesh: only dp
  RunTrace trace;                    // of one rank
  double exposed_seconds = 0;        // per step: communication that computation did not hide
  double waiting_seconds = 0;        // per step: for the other ranks
  double communication_seconds = 0;  // of a step's gradients, in isolation; 0: unknown
};
// `alone`: the calibration of one rank, whose ceilings and process memory are those of the machine.
// The fit is the same; the link is as fast as the exchange of the gradients, and waiting counts as
// stragglers.
Calibration calibrate_ranks(const RankRecording& run, const std::string& name,
                            const Calibration& alone);

// Sets the peak of `recipe`'s precision so that, with the constants of `calibration`, which were
// fitted with as many ranks in another precision, products take as long as recorded.
void calibrate_precision(const RunTrace& trace, const spec::Recipe& recipe, const std::string& name,
                         Calibration& calibration);

Json to_json(const Calibration& calibration);

}  // namespace tutti::plan
