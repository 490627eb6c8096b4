// The operations of a training step on one rank of each pipeline stage, factored: kinds of layers
// with their operations, and per virtual stage how many of each kind follow one another. All ranks
// of a stage run the same program, but that of tensor parallel ranks the first alone adds the
// biases of row-parallel projections.
//
// One micro-batch: forward of the runs in order, backward (input, weight) in reverse. Per chunk:
// gather before, reduce after. Once: update. Schedule says when.
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
  std::vector<Op> gather_backward;  // again for the way back (ZeRO 3)
  std::vector<Op> reduce;           // gradients of this chunk
  std::vector<Op> add;              // of what was reduced to the rank's shard, after the first
                                    // micro-batch (ZeRO 2 and 3)
  bool repeats_again = false;  // weight gradients run apart (peak_delayed), and what recomputation
                               // drops is computed a second time for them
};

// What a pipeline rank does once a step, in this order.
struct UpdateOps {
  std::vector<Op> tied_table;     // sum of the gradients of its two copies
  std::vector<Op> tensor_copies;  // and of what several tensor parallel ranks hold
  std::vector<Op> router_loads;
  std::vector<Op> norm;
  std::vector<Op> selection_bias;
  std::vector<Op> update;
  std::vector<Op> quantize;  // weights, before their layers' first forward passes
};

struct Program {
  std::string profile;
  std::vector<LayerOps> kinds;
  std::vector<StageProgram> stages;  // per virtual stage
  std::vector<UpdateOps> updates;    // per pipeline rank

  const LayerOps& kind(const std::string& name) const;  // aborts when absent
};

Program make_program(const Recipe& recipe, const Profile& profile);

// One boundary crossing between pipeline ranks: the residual of a micro-batch, or its gradient, in
// the profile's type of it, as each rank holds it.
Op transfer_op(const Recipe& recipe, const Profile& profile);

// Calls `visit(op, first, times)` for every operation that `action`, of whole chunks
// (step_actions), stands for on pipeline rank `stage`, `times` equal layers at once; `first`: in
// the first micro-batch of a step (Op::first_bytes hold). load, save and evaluate have none here.
void visit_operations(const Program& program, const Mesh& mesh, int64_t stage, const Action& action,
                      const std::function<void(const Op&, bool first, int64_t times)>& visit);

// Every operation of a step on pipeline rank `stage`, one entry per execution, with `bytes` of its
// micro-batch: what a Recorder of that rank would hold, plus collectives.
std::vector<Op> step_operations(const Program& program, const Schedule& schedule, int64_t stage);

// Sums over a step on one rank of pipeline rank `stage`.
struct Work {
  double flops = 0;
  double model_flops = 0;
  double bytes = 0;             // of memory, not of collectives
  double collective_bytes = 0;  // full buffers
};
Work step_work(const Program& program, const Schedule& schedule, int64_t stage);

}  // namespace tutti::spec
