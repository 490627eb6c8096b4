// The time of an MLPerf benchmark run to its target: samples from the reference convergence
// (catalog/benchmarks.h), evaluations on the clock.
//
//   samples      the reference's mean (fastest and slowest run dropped) at the batch, linear
//   between
//                points; below the smallest batch its own. Beyond the largest there are no data: an
//                error
//   granularity  a run ends at an evaluation, every `interval` = eval_interval rounded up to whole
//                batches. The reference's mean includes half its own interval of waiting, which is
//                replaced by half of this run's; a single run ends at an evaluation near that
//   evaluations  samples / interval, less those that the rules skip at the start; each one forward
//                pass over eval_samples, rounded up to whole rounds of all data-parallel ranks,
//                and evaluation_start_seconds; a run has its run_start_seconds
#pragma once

#include <string>

#include "tutti/base/json.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

struct TargetForecast {
  std::string benchmark;
  std::string basis;             // "reference points 16 and 32 of ruleset 5.1.0"
  double samples = 0;            // expected, including evaluations
  int64_t interval_samples = 0;  // between evaluations
  int64_t first_samples = 0;     // the evaluations before and after the expected one
  int64_t last_samples = 0;
  double steps = 0;
  double evaluations = 0;
  double evaluation_seconds = 0;  // of one evaluation
  double work_seconds = 0;        // training and evaluation, without failures
};

// With the newest reference set, or that of `ruleset`. Throws usage if the recipe's sequence is not
// the benchmark's or its batch is beyond the reference.
TargetForecast forecast_target(const catalog::Benchmark& benchmark, const std::string& ruleset,
                               const spec::Recipe& recipe, const StepPrediction& step,
                               const Constants& constants);

// An evaluation over `samples` samples.
double evaluation_seconds(const spec::Recipe& recipe, const StepPrediction& step,
                          const Constants& constants, int64_t samples);

Json to_json(const TargetForecast& forecast);

}  // namespace tutti::plan
