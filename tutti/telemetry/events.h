// What a run tells about itself: typed events. Each becomes one JSON line (docs/formats.md), and
// sinks draw, log or plot from the same values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "tutti/base/json.h"

namespace tutti::telemetry {

struct RunStarted {
  std::string run;  // run folder
  std::string name;
  int64_t parameters = 0;
  int64_t steps = 0;       // planned, of the whole run
  int64_t first_step = 0;  // > 0 when resumed
  int64_t tokens_per_step = 0;
  double flops_per_token = 0;  // model FLOPs, forward and backward
  double gemm_peak_flops = 0;  // measured; 0 when not
  std::optional<double> target_loss;
  Json details = Json::object();  // machine, versions, chosen algorithms, memory by arena
};

struct StepDone {
  int64_t step = 0;    // 1 for the first
  int64_t tokens = 0;  // of the whole run so far
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;  // of the measured GEMM peak; 0 when not measured
  double data_wait_seconds = 0;
  bool skipped = false;       // non-finite: parameters left as they were
  int64_t micro_batches = 1;  // accumulated into this step
};

struct EvaluationDone {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;
  double seconds = 0;
};

struct CheckpointSaved {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double stall_seconds = 0;  // time training waited
  double write_seconds = 0;
};

struct CheckpointFailed {
  int64_t step = 0;
  std::string message;
};

struct NonFinite {
  int64_t step = 0;
  std::string tensor;  // first parameter with a non-finite gradient
  int64_t in_a_row = 0;
};

struct BudgetExceeded {
  std::string what;  // "hours", "usd" or "kwh"
  double limit = 0;
  double used = 0;
};

enum class Level { info, warning };
struct Message {
  Level level = Level::info;
  std::string text;
};

struct RunFinished {
  std::string outcome;  // "target_reached", "steps_done", ...
  Json summary = Json::object();
};

struct Event {
  double wall_seconds = 0;  // since 1970-01-01 UTC; filled in by Telemetry::emit
  std::variant<RunStarted, StepDone, EvaluationDone, CheckpointSaved, CheckpointFailed, NonFinite,
               BudgetExceeded, Message, RunFinished>
      body;
};

const char* event_name(const Event& event);  // "step_done", ...

// {"event": "step_done", "time": "2026-01-31T12:00:00Z", "wall_seconds": 1769860800.123, ...members
// under their own names...}. Numbers that JSON cannot hold (NaN, infinities) become null.
Json to_json(const Event& event);

}  // namespace tutti::telemetry
