// The operations of a training step on one rank of each pipeline stage, as kinds of layers with
// their operations, and per virtual stage the number of consecutive layers of each kind. All ranks
// of a stage run the same program, except that among tensor parallel ranks only the first adds the
// biases of row-parallel projections.
//
// Per micro-batch: forward of the runs in order, backward (input, weight) in reverse. Per chunk:
// gather before, reduce after. Once: update. Schedule defines the order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/spec/program/layer_ops.h"
#include "tutti/spec/program/operation.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::spec {

struct LayerRun {
  size_t kind = 0;  // index into Program::kinds
  int64_t repeats = 1;
  bool operator==(const LayerRun&) const = default;
};

struct StageProgram {
  std::vector<LayerRun> runs;       // in forward order
  std::vector<Op> transfer;         // one boundary crossing (send, receive and their gradients)
  std::vector<Op> gather;           // weights of this chunk (ZeRO)
  std::vector<Op> gather_backward;  // again for the backward pass (ZeRO 3)
  std::vector<Op> reduce;           // gradients of this chunk
  std::vector<Op>
      add;  // the reduced gradients to the rank's shard, after the first micro-batch (ZeRO 2 and 3)
  bool repeats_again = false;  // weight gradients run separately (peak_delayed), and recomputation
                               // runs a second time for them
};

// The operations of a pipeline rank once per step, in this order.
struct UpdateOps {
  std::vector<Op> tied_table;     // sum of the gradients of both copies
  std::vector<Op> tensor_copies;  // likewise of parameters that several tensor parallel ranks hold
  std::vector<Op> router_loads;
  std::vector<Op> norm;
  std::vector<Op> selection_bias;
  std::vector<Op> update;
  std::vector<Op> quantize;  // weights, before the first forward passes of their layers
};

struct Program {
  std::string profile;
  std::vector<LayerOps> kinds;
  std::vector<StageProgram> stages;  // per virtual stage
  std::vector<UpdateOps> updates;    // per pipeline rank

  const LayerOps& kind(const std::string& name) const;  // aborts when absent
};

Program make_program(const Recipe& recipe, const Profile& profile);

// One boundary crossing between pipeline ranks: the residual of a micro-batch, or its gradient, as
// each rank holds it, in the profile's type.
Op transfer_op(const Recipe& recipe, const Profile& profile);

// Calls `visit(op, first, times)` for every operation of `action`, which covers whole chunks
// (step_actions), on pipeline rank `stage`, for `times` equal layers at once; `first`: in the first
// micro-batch of a step (Op::first_bytes hold). load, save and evaluate have no operations here.
void visit_operations(const Program& program, const Mesh& mesh, int64_t stage, const Action& action,
                      const std::function<void(const Op&, bool first, int64_t times)>& visit);

// Every operation of a step on pipeline rank `stage`, one entry per execution, with the `bytes` of
// its micro-batch: what a Recorder on that rank records, plus collectives.
std::vector<Op> step_operations(const Program& program, const Schedule& schedule, int64_t stage);

// Sums over a step on one rank of pipeline rank `stage`.
struct Work {
  double flops = 0;
  double model_flops = 0;
  double bytes = 0;             // of memory, excluding collectives
  double collective_bytes = 0;  // full buffers
};
Work step_work(const Program& program, const Schedule& schedule, int64_t stage);

}  // namespace tutti::spec
