// Measures the bubble of a pipeline schedule: the executor of training runs a step over ranks that
// are threads of this process, with real messages between them; only the passes themselves are
// sleeps, so that stages are exactly equal and need no cores.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/schedule/schedule.h"

namespace tutti::parallel {

struct PassSeconds {
  double forward = 0;  // of one micro-batch through one virtual stage
  double backward = 0;
  double weight_gradient = 0;
};

struct PassSpan {
  spec::Action action;  // forward, backward or weight_gradient
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct PipelineMeasurement {
  double seconds = 0;                        // from the first pass of any rank to the last one
  std::vector<std::vector<PassSpan>> ranks;  // from 0 on, in order

  double busy_seconds() const;  // mean over ranks
  // Idle over busy time, as schedule.h states it in theory.
  double bubble() const { return seconds / busy_seconds() - 1; }
};

// One step of `micro_batches` on mesh.pp ranks.
PipelineMeasurement measure_pipeline(const spec::Mesh& mesh, int64_t micro_batches,
                                     const PassSeconds& passes);

// That of equal stages whose three passes take equally long: (p - 1) / (v m), with a zero bubble
// (p - 1) / (3 m).
double ideal_bubble(const spec::Mesh& mesh, int64_t micro_batches);

}  // namespace tutti::parallel
