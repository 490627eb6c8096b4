// Where the time of a run went, from the marks in its log.
//
// Between run_start and run_stop a log alternates training and evaluation. The steady rate is the
// median over the training stretches but the first, which holds what happens once; start-up is the
// time that neither steady training nor evaluation explains: first steps, one-off delays, jitter.
#pragma once

#include <vector>

#include "tutti/mlperf/run.h"

namespace tutti::mlperf {

struct Stretch {
  bool evaluation = false;
  double start_seconds = 0;  // after run_start
  double stop_seconds = 0;
  double samples = 0;  // trained in it
};

struct Timeline {
  std::vector<Stretch> stretches;
  double total_seconds = 0;
  double samples = 0;
  double steady_samples_per_second = 0;
  double training_seconds = 0;    // samples / steady rate
  double evaluation_seconds = 0;  // 0 when the log does not time evaluations
  double startup_seconds = 0;     // the rest; may be slightly negative by jitter
  int evaluations = 0;
  bool evaluations_timed = false;
};

// `progress_per_sample`: 1, or the tokens of a sequence where the log counts tokens. Needs a run
// with run_start, run_stop and an evaluation.
Timeline timeline_of(const Run& run, double progress_per_sample);

}  // namespace tutti::mlperf
