// Timeline of a run, from the intervals in its log.
//
// Between run_start and run_stop a log alternates training and evaluation. The steady rate is that
// of the median step where the log times its steps; else the median over the training stretches.
// Both weigh by what was trained: a stretch of 270 steps counts 270 times, and a step in a log that
// keeps every tenth counts ten times. The first stretch holds what happens once and is left out,
// unless it is faster than the others: then those are slow by something that is not a step, and the
// first says more. Start-up is the time that neither steady training nor evaluation explains: first
// steps, one-off delays, jitter. Where it comes out negative the steady rate is too low by that
// much, and reports must say so.
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
  double startup_seconds = 0;     // the rest; see above
  double step_seconds = 0;        // of a steady step; 0 without a batch size
  bool steps_timed = false;       // the steady rate is that of logged step times
  bool startup_hidden = false;    // it is that of a first stretch: start-up is inside it
  int evaluations = 0;
  bool evaluations_timed = false;
};

// Median of seconds per sample over the training stretches, weighed by samples; 0 without any.
// `hidden`, if asked for: it is the rate of a first stretch that holds half of all samples.
double steady_seconds_per_sample(const std::vector<Stretch>& stretches, bool* hidden = nullptr);

// `progress_per_sample`: 1, or the tokens of a sequence where the log counts tokens. Needs a run
// with run_start, run_stop and an evaluation.
Timeline timeline_of(const Run& run, double progress_per_sample);

}  // namespace tutti::mlperf
