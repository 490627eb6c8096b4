// The schedule of a step, played through with the priced passes: every pipeline rank does its
// passes in order, each when its input has arrived. Bubbles, uneven stages and exposed transfers
// come out of it. Large numbers of micro-batches repeat: the middle is extrapolated from two
// periods, which is exact once the pattern is periodic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tutti/plan/cost.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::plan {

// Seconds per virtual stage and micro-batch, with everything that is exposed already inside.
struct PassSeconds {
  double forward = 0;
  double backward = 0;  // recompute and input gradients
  double weight_gradient = 0;
  double transfer = 0;  // until the next stage has the output, while the sender is free
  double blocked = 0;   // of the transfer, time that the sender stands still
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
  std::vector<TimelineEntry> timeline;  // when asked for
};

// No play of the schedule is shorter. Rank r cannot start before the first micro-batch has passed
// the stages before it, then it has all its passes to do, and then the last gradient still has to
// travel back to rank 0 through the passes of the ranks before it:
//   max over r of  sum_{g<r} (F_g + transfer_g)  +  work of r  +  the way back from r to q <= r
// Without transfers and with equal stages this is the play itself for 1F1B and GPipe; ZB-H1 waits
// with weight gradients of its last passes, which are not on the way back.
double pipeline_lower_bound(const spec::Mesh& mesh, int64_t micro_batches,
                            const std::vector<PassSeconds>& stages);

// One simulator may be used again and again; it keeps its scratch memory.
class PipelineSimulator {
 public:
  SimulatedPipeline run(const spec::Mesh& mesh, int64_t micro_batches,
                        const std::vector<PassSeconds>& stages, bool timeline = false);
  // The seconds alone, extrapolated for many micro-batches; at least pipeline_lower_bound, because
  // a rank that is only slightly slower than the others sets the pace in the long run alone.
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
  std::vector<double> forward_ready_;   // [virtual stage, micro]: input arrived
  std::vector<double> backward_ready_;  // [virtual stage, micro]
  std::vector<double> clock_;           // per rank
  std::vector<size_t> next_;            // per rank
};

}  // namespace tutti::plan
