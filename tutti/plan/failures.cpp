#include "tutti/plan/failures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tutti/base/quantile.h"
#include "tutti/base/rng.h"
#include "tutti/base/units.h"

namespace tutti::plan {
namespace {

constexpr double kNever = 1e6 * 365 * kSecondsPerDay;  // a million years

double interval_of(const FailureModel& model, double mean_time) {
  if (!model.resumes) return std::numeric_limits<double>::infinity();
  if (model.interval_seconds > 0) return model.interval_seconds;
  const double to_storage = 1 - model.memory_share;  // share of the interruptions
  if (to_storage <= 0) return std::numeric_limits<double>::infinity();
  return daly_interval_seconds(model.save_seconds, mean_time / to_storage);
}

// Work between saves of the nearest level, and the time that each save blocks.
struct SaveLevel {
  double interval = 0;
  double save = 0;
};

SaveLevel nearest_level(const FailureModel& model, double mean_time) {
  const double storage = interval_of(model, mean_time);
  if (model.memory_share <= 0) return {storage, model.save_seconds};
  const double memory = daly_interval_seconds(model.memory_save_seconds, mean_time);
  return {std::min(memory, storage), model.memory_save_seconds};
}

struct Played {
  double wall_seconds = 0;
  int64_t interruptions = 0;
};

// One run: the time to the next interruption passes during saves and restarts, too.
Played play(const FailureModel& model, double mean_time, const SaveLevel& near, double storage,
            double work, uint64_t key) {
  Played out;
  uint64_t draws = 0;
  const auto happens = [&](double share) {
    return share > 0 && random_uniform(key, draws++) < share;
  };
  const auto next = [&] { return -mean_time * std::log1p(-random_uniform(key, draws++)); };
  double until = next();
  double saved = 0;    // work, on the nearest level
  double stored = 0;   // work in storage
  double restart = 0;  // seconds of the pending restart
  bool down = false;
  const auto pass = [&](double seconds) {  // true: completed without interruption
    if (until >= seconds) {
      until -= seconds;
      out.wall_seconds += seconds;
      return true;
    }
    out.wall_seconds += until;
    ++out.interruptions;
    if (model.memory_share > 0 && !happens(model.memory_share)) saved = stored;
    restart = happens(model.partial_share) ? model.partial_restart_seconds : model.restart_seconds;
    until = next();
    down = true;
    return false;
  };
  const bool two_levels = model.memory_share > 0;
  while (saved < work) {
    if (down) {
      if (pass(restart)) down = false;
      continue;
    }
    double piece = std::min(near.interval, work - saved);
    if (two_levels) piece = std::min(piece, stored + storage - saved);
    const bool last = saved + piece >= work;
    const bool stores = !two_levels || saved + piece >= stored + storage;
    const double save = stores ? model.save_seconds : near.save;
    if (!pass(piece + (last ? 0 : save))) continue;
    saved += piece;
    if (stores) stored = saved;
  }
  return out;
}

}  // namespace

FailureModel without_resuming(FailureModel model) {
  model.resumes = false;
  model.interval_seconds = 0;
  model.memory_share = 0;
  model.partial_share = 0;
  model.restart_seconds = 0;
  return model;
}

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
    out.interval_seconds = out.best_interval_seconds =
        model.resumes ? work_seconds : std::numeric_limits<double>::infinity();
    out.wall_seconds = work_seconds;
    return out;
  }
  const double m = 1 / rate;
  const double to_storage = 1 - model.memory_share;
  out.mean_time_to_interruption_seconds = m;
  FailureModel best = model;
  best.interval_seconds = 0;
  out.best_interval_seconds = interval_of(best, m);
  out.interval_seconds = interval_of(model, m);
  const SaveLevel near = nearest_level(model, m);
  if (model.memory_share > 0) out.memory_interval_seconds = near.interval;

  const double up = (1 - model.partial_share) * std::exp(-model.restart_seconds / m) +
                    model.partial_share * std::exp(-model.partial_restart_seconds / m);
  const double saves =
      work_seconds > near.interval ? std::ceil(work_seconds / near.interval * (1 - 1e-12)) - 1 : 0;
  const double left = saves > 0 ? work_seconds - saves * near.interval : work_seconds;
  double wall = std::expm1(left / m);
  if (saves > 0) wall += saves * std::expm1((near.interval + near.save) / m);
  wall *= m / up;
  if (model.memory_share > 0) {
    const double interval = std::min(out.interval_seconds, wall);
    const double stored = std::ceil(work_seconds / out.interval_seconds * (1 - 1e-12)) - 1;
    const double again = to_storage * rate * interval / 2;
    wall = again < 1 ? (wall + std::max(0.0, stored) * model.save_seconds) / (1 - again)
                     : std::numeric_limits<double>::infinity();
  }
  out.wall_seconds = wall < kNever ? wall : std::numeric_limits<double>::infinity();
  out.goodput = work_seconds / out.wall_seconds;
  out.interruptions = out.wall_seconds * rate;
  out.lost_seconds = out.wall_seconds - work_seconds;
  return out;
}

SimulatedFailures simulate_failures(const FailureModel& model, int64_t nodes, double work_seconds,
                                    int runs, uint64_t seed) {
  const double m = 1 / interruptions_per_second(model, nodes);
  const double storage = interval_of(model, m);
  const SaveLevel near = nearest_level(model, m);
  std::vector<double> walls;
  std::vector<double> counts;
  SimulatedFailures out;
  for (int run = 0; run < runs; ++run) {
    const uint64_t key = stream_key(seed, "failures " + std::to_string(run));
    const Played played = play(model, m, near, storage, work_seconds, key);
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
