// Slow nodes, preemption of spot instances, spares, and the checkpoint interval by simulation.
//
//   slow nodes  a step waits for the slowest: with a share q of nodes that take f times as long,
//               expected factor 1 + (f - 1) (1 - (1 - q)^N) on N nodes
//   spot        a node is preempted at a rate per day, with notice. If the notice covers a save,
//               nothing is lost but save and restart: wall = W / (1 - v (w + R)), v preemptions per
//               second of the job, W the wall time under failures alone. If it does not,
//               preemptions are failures (failures.h)
//   spares      nodes in repair are Poisson with mean N r T (r failures per node, T repair time):
//               the least s with P(more than s in repair) below the given probability
#pragma once

#include <cstdint>

#include "tutti/plan/failures.h"

namespace tutti::plan {

struct SlowNodes {
  double share = 0;   // of nodes, 0 to 1
  double factor = 1;  // time of a step on one of them relative to the others
};
double slow_node_factor(const SlowNodes& slow, int64_t nodes);

struct SpotModel {
  double preemptions_per_node_per_day = 0;
  double notice_seconds = 30;
};
struct SpotForecast {
  double preemptions = 0;  // of the run
  bool saves_in_time = false;
  double wall_seconds = 0;  // including failures; infinite without progress
};
SpotForecast forecast_spot(const FailureModel& failures, const SpotModel& spot, int64_t nodes,
                           double work_seconds);

// Spare nodes so that a failed node is replaced at once except with a probability below
// `short_chance`.
int64_t spares_needed(double failures_per_node_per_day, int64_t nodes, double repair_seconds,
                      double short_chance = 0.01);

// The interval with the least mean wall time over `runs` simulated runs (failures.h), by
// golden-section search between a quarter of Daly's and four times that. Deterministic in `seed`.
struct SimulatedInterval {
  double seconds = 0;
  double wall_seconds = 0;       // at that interval
  double daly_wall_seconds = 0;  // with Daly's interval, same runs
};
SimulatedInterval simulated_interval(const FailureModel& model, int64_t nodes, double work_seconds,
                                     int runs, uint64_t seed);

}  // namespace tutti::plan
