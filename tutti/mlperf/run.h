// What one log says about its run: times, evaluations, seeds, hyperparameters.
//
// Times are milliseconds since 1970-01-01 UTC as logged. Progress is what the log counts, samples
// (samples_count) or tokens (epoch_num of GPT-3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/mlperf/record.h"

namespace tutti::mlperf {

struct Evaluation {
  double start_ms = 0;  // of eval_start; when it is not logged, of the accuracy itself
  double stop_ms = 0;   // of eval_stop, or of the accuracy
  bool timed = false;   // eval_start was logged
  double progress = 0;
  double value = 0;  // NaN when it was not a number
};

// A logged time of training steps (tracked_stats: train_step_time, train_step_timing).
struct StepTime {
  double progress = 0;  // trained so far; of a block's mean what the block trained
  double seconds = 0;   // of one step
};

struct Seed {
  int64_t line = 0;
  std::string location;  // "file:lineno" of the metadata; "" when they do not say
  std::optional<int64_t> value;
};

struct Run {
  std::string benchmark;
  std::string division;
  std::string organisation;
  std::string platform;
  std::string availability;  // submission_status: "onprem", "cloud", ...
  std::optional<double> global_batch_samples;
  std::optional<double> init_start_ms;  // the first
  std::optional<double> run_start_ms;
  std::optional<double> run_stop_ms;
  std::string status;                        // of run_stop: "success"
  std::optional<double> progress_to_target;  // of the last evaluation before run_stop
  std::vector<Evaluation> evaluations;       // in the order of the log
  std::vector<StepTime> steps;               // each of one step, progress ascending
  std::vector<StepTime> blocks;              // each the mean over the steps of a block
  std::vector<Seed> seeds;
  std::vector<std::pair<std::string, Json>> settings;  // scalars logged once, before run_start

  // run_stop - run_start; none when either is missing.
  std::optional<double> minutes() const;
  // run_start - the first init_start: untimed; none when either is missing.
  std::optional<double> initialisation_seconds() const;
};

// Takes the records of a log one by one. Keeps a bounded amount of them.
class RunReader {
 public:
  void record(const Record& record);
  Run take() { return std::move(run_); }

 private:
  void evaluation(const Record& record);
  void step_time(const Record& record);
  void setting(const Record& record);

  Run run_;
  std::optional<double> eval_start_ms_;
  bool stop_pending_ = false;  // an evaluation waits for its eval_stop
};

}  // namespace tutti::mlperf
