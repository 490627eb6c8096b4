#include "tutti/plan/failures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/base/units.h"

namespace tutti::plan {
namespace {

constexpr double kNever = 1e6 * 365 * kSecondsPerDay;  // a million years

double interval_of(const FailureModel& model, double mean_time) {
  return model.interval_seconds > 0 ? model.interval_seconds
                                    : daly_interval_seconds(model.save_seconds, mean_time);
}

struct Played {
  double wall_seconds = 0;
  int64_t interruptions = 0;
};

// One run: the time to the next interruption runs through saves and restarts alike.
Played play(const FailureModel& model, double mean_time, double interval, double work,
            uint64_t key) {
  Played out;
  uint64_t draws = 0;
  const auto next = [&] { return -mean_time * std::log1p(-random_uniform(key, draws++)); };
  double until = next();
  double saved = 0;
  const auto pass = [&](double seconds) {  // true: got through without interruption
    if (until >= seconds) {
      until -= seconds;
      out.wall_seconds += seconds;
      return true;
    }
    out.wall_seconds += until;
    ++out.interruptions;
    until = next();
    return false;
  };
  bool down = false;
  while (saved < work) {
    if (down) {
      down = !pass(model.restart_seconds);
      continue;
    }
    const double piece = std::min(interval, work - saved);
    const bool last = saved + piece >= work;
    if (pass(piece + (last ? 0 : model.save_seconds))) {
      saved += piece;
    } else {
      down = true;
    }
  }
  return out;
}

double quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

}  // namespace

double interruptions_per_second(const FailureModel& model, int64_t nodes) {
  const auto count = static_cast<double>(nodes);
  const double whole_job = model.job_nodes > 0 ? std::min(1.0, count / model.job_nodes) : 1;
  return (model.per_job_per_day * whole_job + count * model.per_node_per_day) / kSecondsPerDay;
}

InterruptionInterval interruption_interval(const FailureModel& model, int64_t nodes, double days) {
  constexpr double kFivePercent = 1.645;  // standard deviations
  const auto count_at = [&](double deviations) {
    FailureModel cluster = model;
    cluster.per_node_per_day *= std::exp(deviations * model.spread_ratio);
    const double mean = interruptions_per_second(cluster, nodes) * kSecondsPerDay * days;
    return std::max(0.0, mean + deviations * std::sqrt(mean));
  };
  return {count_at(-kFivePercent), count_at(0), count_at(kFivePercent)};
}

double daly_interval_seconds(double save_seconds, double mean_time_seconds) {
  const double w = save_seconds;
  const double m = mean_time_seconds;
  if (w >= 2 * m) return m;
  return std::sqrt(2 * w * m) * (1 + std::sqrt(w / (2 * m)) / 3 + w / (18 * m)) - w;
}

FailureForecast forecast_failures(const FailureModel& model, int64_t nodes, double work_seconds) {
  FailureForecast out;
  const double rate = interruptions_per_second(model, nodes);
  if (rate <= 0) {
    out.mean_time_to_interruption_seconds = std::numeric_limits<double>::infinity();
    out.interval_seconds = out.best_interval_seconds = work_seconds;
    out.wall_seconds = work_seconds;
    return out;
  }
  const double m = 1 / rate;
  out.mean_time_to_interruption_seconds = m;
  out.best_interval_seconds = daly_interval_seconds(model.save_seconds, m);
  out.interval_seconds = interval_of(model, m);
  const double t = std::min(out.interval_seconds, work_seconds);
  out.wall_seconds = work_seconds / t * m * std::exp(model.restart_seconds / m) *
                     std::expm1((t + model.save_seconds) / m);
  if (!(out.wall_seconds < kNever)) out.wall_seconds = std::numeric_limits<double>::infinity();
  out.goodput = work_seconds / out.wall_seconds;
  out.interruptions = out.wall_seconds * rate;
  out.lost_seconds = out.wall_seconds - work_seconds;
  return out;
}

SimulatedFailures simulate_failures(const FailureModel& model, int64_t nodes, double work_seconds,
                                    int runs, uint64_t seed) {
  const double m = 1 / interruptions_per_second(model, nodes);
  const double interval = interval_of(model, m);
  std::vector<double> walls;
  std::vector<double> counts;
  SimulatedFailures out;
  for (int run = 0; run < runs; ++run) {
    const uint64_t key = stream_key(seed, "failures " + std::to_string(run));
    const Played played = play(model, m, interval, work_seconds, key);
    walls.push_back(played.wall_seconds);
    counts.push_back(static_cast<double>(played.interruptions));
    out.mean_wall_seconds += walls.back() / runs;
    out.mean_interruptions += counts.back() / runs;
  }
  out.low_wall_seconds = quantile(walls, 0.05);
  out.high_wall_seconds = quantile(walls, 0.95);
  out.low_interruptions = quantile(counts, 0.05);
  out.high_interruptions = quantile(counts, 0.95);
  return out;
}

}  // namespace tutti::plan
