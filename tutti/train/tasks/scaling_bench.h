// Breakdown of a step's time on several ranks, and the loss against fewer ranks.
//
// Of every rank and step: compute (in operations), communication and waiting (Ticket::wait), host
// (the rest). The last to arrive does not wait, so the least that any rank waits is communication
// that computing did not hide, and what others wait longer is waiting for ranks:
//
//   exposed = least waited of all ranks,  waiting = mean waited - exposed
//
// and compute and host are means over ranks, so that the four add up to the mean step.
#pragma once

#include <cstdint>

#include "tutti/base/json.h"
#include "tutti/comm/world/world.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

struct ScalingBench {
  int64_t ranks = 1;
  int threads = 1;  // of each rank
  int64_t tokens_per_step = 0;
  // Medians over steps.
  double step_seconds = 0;
  double compute_seconds = 0;
  double exposed_seconds = 0;
  double waiting_seconds = 0;
  double host_seconds = 0;
  // Of what replicas exchange in a step, with nothing computed meanwhile (ZeRO 0 and 1; else 0).
  double communication_seconds = 0;
  // Where asked for: rank 0's steps and operations as `tutti train --trace` writes them; a step's
  // args say how long it waited for others.
  Json trace;

  double tokens_per_second() const { return static_cast<double>(tokens_per_step) / step_seconds; }
};

// Steps of the recipe on random tokens, two to warm up first. The recipe's mesh is that of the
// world; null: alone. Collective; every rank gets the same, but for the trace.
ScalingBench bench_scaling(const spec::Recipe& recipe, comm::World* world, int64_t steps,
                           bool record = false);

Json to_json(const ScalingBench& bench);
ScalingBench parse_scaling_bench(const Json& json);

}  // namespace tutti::train
