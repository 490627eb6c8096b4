#include "tutti/optim/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace tutti::optim {
namespace {

// How far `step` is on the way from `begin` to `end`, in [0, 1].
double progress(int64_t step, int64_t begin, int64_t end) {
  if (end <= begin) return step >= end ? 1 : 0;
  return std::clamp(static_cast<double>(step - begin) / static_cast<double>(end - begin), 0.0, 1.0);
}

double warmup_rate(double peak, const spec::ScheduleConfig& schedule, int64_t step) {
  const auto done = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  switch (schedule.warmup_form) {
    case spec::WarmupForm::inclusive: return peak * (done + 1) / warmup;
    case spec::WarmupForm::from_zero: return peak * done / warmup;
    case spec::WarmupForm::between: return peak * (done + 1) / (warmup + 1);
  }
  return peak;
}

}  // namespace

double learning_rate(double peak, const spec::ScheduleConfig& schedule, int64_t steps,
                     int64_t run_step) {
  const int64_t step = run_step + schedule.start_step;
  if (step < schedule.warmup_steps) return warmup_rate(peak, schedule, step);
  const double floor = schedule.minimum_ratio;
  const int64_t decay = schedule.decay_steps > 0 ? schedule.decay_steps : steps;
  switch (schedule.kind) {
    case spec::ScheduleKind::constant: return peak;
    case spec::ScheduleKind::linear:
      return peak * (1 - (1 - floor) * progress(step, schedule.warmup_steps, decay));
    case spec::ScheduleKind::cosine: {
      const double x = progress(step, schedule.warmup_steps, decay);
      return peak * (floor + (1 - floor) * 0.5 * (1 + std::cos(M_PI * x)));
    }
    case spec::ScheduleKind::wsd: {
      const int64_t length = schedule.decay_steps > 0 ? schedule.decay_steps : steps / 5;
      return peak * (1 - (1 - floor) * progress(step, steps - length, steps));
    }
  }
  return peak;
}

}  // namespace tutti::optim
