// Simulates the schedule of a step with the priced passes: every pipeline rank executes its passes
// in order, each when its input has arrived. The result contains bubbles, uneven stages and exposed
// transfers. Many micro-batches repeat a pattern: the middle is extrapolated from two periods,
// which is exact once the pattern is periodic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tutti/plan/cost.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::plan {

// Seconds per virtual stage and micro-batch, including everything that is exposed.
struct PassSeconds {
  double forward = 0;
  double backward = 0;  // recompute and input gradients
  double weight_gradient = 0;
  double transfer = 0;  // until the next stage has the output; the sender is free
  double blocked = 0;   // part of the transfer that blocks the sender
};

struct TimelineEntry {
  int64_t stage = 0;  // pipeline rank
  spec::Action action;
  double start_seconds = 0;
  double end_seconds = 0;
};

struct SimulatedPipeline {
  double seconds = 0;                   // until the last pass of any rank
  std::vector<double> busy;             // per pipeline rank: passes and blocked transfers
  std::vector<double> finished;         // per pipeline rank
  std::vector<TimelineEntry> timeline;  // if requested
};

// A lower bound of every simulation of the schedule. Rank r cannot start before the first
// micro-batch has passed the stages before it; then it has to execute all its passes; and then the
// last gradient has to return to rank 0 through the backward passes of the ranks before it:
//   max over r of  sum_{g<r} (F_g + transfer_g)  +  work of r  +  the return from r to q <= r
// Without transfers and with equal stages it equals the simulation for 1F1B and GPipe; ZB-H1 delays
// weight gradients of its last passes, which are not part of the return.
double pipeline_lower_bound(const spec::Mesh& mesh, int64_t micro_batches,
                            const std::vector<PassSeconds>& stages);

// A simulator can be reused; it keeps its scratch memory.
class PipelineSimulator {
 public:
  SimulatedPipeline run(const spec::Mesh& mesh, int64_t micro_batches,
                        const std::vector<PassSeconds>& stages, bool timeline = false);
  // Only the seconds, extrapolated for many micro-batches; at least pipeline_lower_bound, because a
  // rank that is only slightly slower than the others determines the pace only in the long run.
  double seconds(const spec::Mesh& mesh, int64_t micro_batches,
                 const std::vector<PassSeconds>& stages);

 private:
  double play(const spec::Mesh& mesh, int64_t micro_batches, const std::vector<PassSeconds>& stages,
              SimulatedPipeline* out);
  const std::vector<std::vector<spec::Action>>& orders(const spec::Mesh& mesh,
                                                       int64_t micro_batches);

  struct CachedOrder {
    int64_t pp = 0, vpp = 0, micro_batches = 0;
    spec::Pipeline pipeline = spec::Pipeline::one_f_one_b;
    size_t actions = 0;
    std::vector<std::vector<spec::Action>> orders;
  };
  std::deque<CachedOrder> cache_;  // oldest first
  size_t cached_actions_ = 0;
  std::vector<double> forward_ready_;   // [virtual stage, micro]: time of the input's arrival
  std::vector<double> backward_ready_;  // [virtual stage, micro]
  std::vector<double> clock_;           // per rank
  std::vector<size_t> next_;            // per rank
};

}  // namespace tutti::plan
