#include "tutti/plan/resilience.h"

#include <cmath>
#include <limits>

#include "tutti/base/units.h"

namespace tutti::plan {
namespace {

constexpr double kMostLost = 1e6;  // e-folds beyond which a run never ends
constexpr double kManyInRepair = 1e7;

}  // namespace

double slow_node_factor(const SlowNodes& slow, int64_t nodes) {
  const double any = 1 - std::pow(1 - slow.share, static_cast<double>(nodes));
  return 1 + (slow.factor - 1) * any;
}

SpotForecast forecast_spot(const FailureModel& failures, const SpotModel& spot, int64_t nodes,
                           double work_seconds) {
  SpotForecast out;
  const double rate =
      spot.preemptions_per_node_per_day * static_cast<double>(nodes) / kSecondsPerDay;
  out.saves_in_time = failures.resumes && spot.notice_seconds >= failures.save_seconds;
  if (out.saves_in_time) {
    const double lost = rate * (failures.save_seconds + failures.restart_seconds);
    const double wall = forecast_failures(failures, nodes, work_seconds).wall_seconds;
    out.wall_seconds = lost < 1 ? wall / (1 - lost) : std::numeric_limits<double>::infinity();
  } else {
    FailureModel both = failures;
    both.per_node_per_day += spot.preemptions_per_node_per_day;
    const double exponent =
        interruptions_per_second(both, nodes) * (both.restart_seconds + both.save_seconds);
    out.wall_seconds = exponent < kMostLost
                           ? forecast_failures(both, nodes, work_seconds).wall_seconds
                           : std::numeric_limits<double>::infinity();
  }
  out.preemptions = out.wall_seconds * rate;
  return out;
}

int64_t spares_needed(double failures_per_node_per_day, int64_t nodes, double repair_seconds,
                      double short_chance) {
  const double mean =
      static_cast<double>(nodes) * failures_per_node_per_day * repair_seconds / kSecondsPerDay;
  if (!(mean > 0)) return 0;
  if (mean > kManyInRepair) {  // nearly normal: its tail is below e^(-x^2 / 2)
    return static_cast<int64_t>(std::ceil(mean + std::sqrt(2 * std::log(1 / short_chance) * mean)));
  }
  // Terms in logarithms: e^-mean underflows for large sites.
  double within = 0;
  for (int64_t s = 0;; ++s) {
    const auto count = static_cast<double>(s);
    within += std::exp(count * std::log(mean) - mean - std::lgamma(count + 1));
    if (1 - within < short_chance) return s;
    if (count > mean + 50 * std::sqrt(mean) + 1000) return s;  // rounding keeps the sum below 1
  }
}

SimulatedInterval simulated_interval(const FailureModel& model, int64_t nodes, double work_seconds,
                                     int runs, uint64_t seed) {
  const double daly =
      daly_interval_seconds(model.save_seconds, 1 / interruptions_per_second(model, nodes));
  const auto wall = [&](double log_interval) {
    FailureModel at = model;
    at.interval_seconds = std::exp(log_interval);
    return simulate_failures(at, nodes, work_seconds, runs, seed).mean_wall_seconds;
  };
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double low = std::log(daly / 4);
  double high = std::log(daly * 4);
  double left = high - golden * (high - low);
  double right = low + golden * (high - low);
  double at_left = wall(left);
  double at_right = wall(right);
  while (high - low > 0.02) {
    if (at_left < at_right) {
      high = right;
      right = left;
      at_right = at_left;
      left = high - golden * (high - low);
      at_left = wall(left);
    } else {
      low = left;
      left = right;
      at_left = at_right;
      right = low + golden * (high - low);
      at_right = wall(right);
    }
  }
  SimulatedInterval out;
  out.seconds = std::exp((low + high) / 2);
  out.wall_seconds = wall((low + high) / 2);
  out.daly_wall_seconds = wall(std::log(daly));
  if (out.daly_wall_seconds < out.wall_seconds) {  // saves are discrete: the wall time has steps
    out.seconds = daly;
    out.wall_seconds = out.daly_wall_seconds;
  }
  return out;
}

}  // namespace tutti::plan
