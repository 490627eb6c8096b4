// The constants of a machine, from the operations that a real run recorded (`tutti train --trace`).
//
// Operations are grouped by name, sizes and bytes, each group's time the mean of its executions;
// groups of one model of cost are fitted together by least squares of ln(predicted / measured),
// weighted with the root of their share of the step:
//   products    gemm_ratio, gemm_side_count, gemm_depth_count of cost.h, with launch_microseconds
//   attention   attention_ratio and attention_backward_ratio
//   the rest    one share of the memory bandwidth per operation name (Constants::operation_ratios)
// Only the quieter half of the steps counts: what ran beside the others is not the machine's. Nor
// does a peak measured apart cap what the trace shows, since other work may have disturbed it: the
// ceiling becomes the greater of that peak and the rate that the fit gives an endless product.
// What of a step lies between operations becomes part of the launch, per operation. The held-out
// error is that of the step when each group is predicted by a fit without it: with its sign, so
// that groups above and below balance as they do in a step.
//
// What such a trace cannot show is recorded apart: ranks that share the machine, whose threads are
// fewer each and lose less to one another, have constants of their own (calibrate_ranks); and the
// rate of the other precision (calibrate_precision). Ranks hide no traffic behind work: both take
// the machine's cores and its memory.
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
  double held_out_seconds = 0;  // by a fit without this group; products only, else as fitted
};

struct Calibration {
  Constants constants;               // error: held out
  MachineCeilings ceilings;          // raised to what the trace shows
  double measured_step_seconds = 0;  // median of the quieter half
  double spread = 0;                 // step_spread of all that were recorded
  double least_step_seconds = 0;
  double most_step_seconds = 0;
  double fitted_step_seconds = 0;       // by Predictor::step with the constants
  std::vector<CalibratedGroup> groups;  // longest share of the step first
};

// `peak_bytes`: the run's largest resident set without its copy for checkpoints, 0: not known.
// Throws unsupported for a precision whose products no ceiling is given for.
Calibration calibrate(const RunTrace& trace, const spec::Recipe& recipe, const std::string& name,
                      const MachineCeilings& ceilings, double peak_bytes);

// What ranks that compute at the same time recorded (train/tasks/scaling_bench.h).
struct RankRecording {
  spec::Recipe recipe;               // its mesh: dp alone
  RunTrace trace;                    // of one of them
  double exposed_seconds = 0;        // of a step: communication that computing did not hide
  double waiting_seconds = 0;        // of a step: for the other ranks
  double communication_seconds = 0;  // of a step's gradients, alone; 0: not known
};
// `alone`: of one rank, whose ceilings and process memory are those of the machine. Fitted as it
// was; the link is as fast as the gradients' exchange was, and waiting counts as stragglers.
Calibration calibrate_ranks(const RankRecording& run, const std::string& name,
                            const Calibration& alone);

// Sets the peak of `recipe`'s precision so that with the constants of `calibration`, which are of
// as many ranks and another precision, products take as long as recorded.
void calibrate_precision(const RunTrace& trace, const spec::Recipe& recipe, const std::string& name,
                         Calibration& calibration);

Json to_json(const Calibration& calibration);

}  // namespace tutti::plan
