// The learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "tutti/spec/recipe/recipe.h"

namespace tutti::optim {

// Learning rate of step 0, 1, ... of a run of `steps`, which begins at step schedule.start_step of
// the schedule: linear warm-up as schedule.warmup_form says (spec/recipe/recipe.h); from step
// warmup_steps of the schedule on
//   constant  the peak;
//   linear    a straight line down to minimum_ratio * peak at decay_steps;
//   cosine    peak * (r + (1 - r) (1 + cos(pi x)) / 2), x from 0 at the end of warm-up to 1 at
//             decay_steps (Loshchilov & Hutter, SGDR, 2017);
//   wsd       the peak, then a straight line over the last decay_steps steps.
double learning_rate(double peak, const spec::ScheduleConfig& schedule, int64_t steps,
                     int64_t run_step);

}  // namespace tutti::optim
