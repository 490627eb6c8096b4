#include "tutti/mlperf/timeline.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/mlperf/statistics.h"

namespace tutti::mlperf {
namespace {

double steady_rate(const std::vector<Stretch>& stretches) {
  std::vector<double> rates;
  for (const Stretch& stretch : stretches) {
    const double seconds = stretch.stop_seconds - stretch.start_seconds;
    if (!stretch.evaluation && stretch.samples > 0 && seconds > 0) {
      rates.push_back(stretch.samples / seconds);
    }
  }
  if (rates.size() > 1) rates.erase(rates.begin());
  return rates.empty() ? 0 : median(rates);
}

}  // namespace

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
  line.steady_samples_per_second = steady_rate(line.stretches);
  if (line.steady_samples_per_second > 0) {
    line.training_seconds = line.samples / line.steady_samples_per_second;
  }
  line.startup_seconds = line.total_seconds - line.training_seconds - line.evaluation_seconds;
  return line;
}

}  // namespace tutti::mlperf
