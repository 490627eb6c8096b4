// A run in figures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/report/run_data.h"

namespace tutti::report {

enum class RunState {
  finished,  // said how it ended
  running,   // its last word is recent
  broken,    // ended without a word: killed, crashed or out of power
};
const char* run_state_name(RunState state);

struct StepTimes {  // seconds; NaN when no step was recorded
  double p50 = 0, p95 = 0, p99 = 0, longest = 0;
};

struct RunSummary {
  std::string folder;
  std::string name;
  RunState state = RunState::finished;
  std::string outcome;  // "target_reached", ...; empty unless finished
  int64_t parameters = 0;
  int64_t steps = 0;          // done
  int64_t planned_steps = 0;  // 0: not known
  int64_t tokens = 0;
  double train_seconds = 0;               // on the run's clock: evaluation in, pauses out
  std::optional<double> final_loss;       // of the last step with a finite one
  std::optional<double> validation_loss;  // of the last evaluation
  std::optional<double> best_validation_loss;
  int64_t best_step = 0;
  std::optional<double> target_loss;
  std::optional<double> time_to_target_seconds;
  double tokens_per_second = 0;  // of training steps
  double mfu = 0;                // tokens_per_second * FLOPs per token / measured peak; 0: unknown
  double gemm_peak_flops = 0;
  double flops_per_token = 0;
  std::string mfu_formula;
  StepTimes step_seconds;
  int64_t skipped_steps = 0;
  int64_t resumes = 0;
  int64_t repeated_steps = 0;
  int64_t checkpoints = 0;
  int64_t failed_checkpoints = 0;
  double checkpoint_stall_seconds = 0;
  double data_wait_seconds = 0;
  double evaluation_seconds = 0;
  int64_t peak_memory_bytes = 0;  // resident; 0: unknown
  // What is missing or odd in the record, as sentences.
  std::vector<std::string> notes;
};

// `now_wall_seconds` distinguishes a running run from one that ended silently.
RunSummary summarize(const RunData& run, double now_wall_seconds);

Json to_json(const RunSummary& summary);

}  // namespace tutti::report
