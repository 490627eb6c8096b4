#include "tutti/mlperf/timeline.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/mlperf/statistics.h"

namespace tutti::mlperf {
namespace {

// The logged time of a steady step; 0 where the log times none.
double logged_step_seconds(const Run& run) {
  std::vector<WeightedValue> values;
  double before = 0;
  for (const StepTime& step : run.steps) {
    values.push_back({step.seconds, step.progress - before});
    before = step.progress;
  }
  if (values.empty()) {
    for (const StepTime& block : run.blocks) values.push_back({block.seconds, block.progress});
  }
  return values.empty() ? 0 : weighted_median(std::move(values));
}

}  // namespace

double steady_seconds_per_sample(const std::vector<Stretch>& stretches, bool* hidden) {
  std::vector<WeightedValue> values;
  double samples = 0;
  for (const Stretch& stretch : stretches) {
    const double seconds = stretch.stop_seconds - stretch.start_seconds;
    if (stretch.evaluation || !(stretch.samples > 0) || !(seconds > 0)) continue;
    values.push_back({seconds / stretch.samples, stretch.samples});
    samples += stretch.samples;
  }
  if (values.empty()) return 0;
  const WeightedValue first = values[0];
  const double all = weighted_median(values);
  if (values.size() > 1) {
    values.erase(values.begin());
    const double others = weighted_median(std::move(values));
    if (first.value >= others) return others;
  }
  if (hidden != nullptr) *hidden = 2 * first.weight >= samples;
  return all;
}

Timeline timeline_of(const Run& run, double progress_per_sample) {
  TUTTI_CHECK(run.run_start_ms && run.run_stop_ms && !run.evaluations.empty(),
              "a timeline of a run that did not finish");
  const double start = *run.run_start_ms;
  const auto seconds = [&](double ms) { return (ms - start) / 1e3; };
  Timeline line;
  line.total_seconds = seconds(*run.run_stop_ms);
  double at = 0;
  double done = 0;
  for (const Evaluation& evaluation : run.evaluations) {
    if (evaluation.stop_ms > *run.run_stop_ms) break;
    const double samples = evaluation.progress / progress_per_sample;
    const double begin = std::max(at, seconds(evaluation.start_ms));
    const double end = std::max(begin, seconds(evaluation.stop_ms));
    line.stretches.push_back({false, at, begin, std::max(0.0, samples - done)});
    if (evaluation.timed) {
      line.stretches.push_back({true, begin, end, 0});
      line.evaluation_seconds += end - begin;
      line.evaluations_timed = true;
    }
    ++line.evaluations;
    at = end;
    done = std::max(done, samples);
  }
  line.samples = done;
  const double batch = run.global_batch_samples.value_or(0);
  const double step = logged_step_seconds(run);
  line.steps_timed = step > 0 && batch > 0;
  if (line.steps_timed) {
    line.steady_samples_per_second = batch / step;
  } else if (const double each = steady_seconds_per_sample(line.stretches, &line.startup_hidden);
             each > 0) {
    line.steady_samples_per_second = 1 / each;
  }
  if (batch > 0 && line.steady_samples_per_second > 0) {
    line.step_seconds = batch / line.steady_samples_per_second;
  }
  if (line.steady_samples_per_second > 0) {
    line.training_seconds = line.samples / line.steady_samples_per_second;
  }
  line.startup_seconds = line.total_seconds - line.training_seconds - line.evaluation_seconds;
  return line;
}

}  // namespace tutti::mlperf
