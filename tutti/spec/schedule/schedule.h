// The ordered actions of a training step, per pipeline rank, generated on demand: here with whole
// chunks of layers as passes, in step_list.h layer by layer, as they are executed.
//
// Orders of the passes on rank s of p (m micro-batches, v chunks of layers per rank):
//   gpipe         all forwards, then all backwards
//   1f1b          p - s - 1 forwards, then one forward and one backward in turn; interleaved (v >
//   1):
//                 2 (p - s - 1) + (v - 1) p forwards first, micro-batches in groups of p per chunk
//                 (Narayanan et al. 2021); idle over ideal time (p - 1) / (v m)
//   zero-bubble   ZB-H1 (Qi et al. 2024): as 1f1b, but the weight gradient runs s micro-batches
//                 after its input gradient, so every rank has p in-flight activations and, with
//                 equal pass times, idle over ideal is (p - 1) / (3 m)
// A gradient is sent on when the weight gradient is done too (1f1b, gpipe), or at once
// (zero-bubble).
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

enum class ActionKind {
  load,              // a micro-batch: which rows, tokens (first stage), targets (last): chunk 0
  fetch,             // what was offloaded, from the host
  gather,            // weights from the ZeRO ranks
  gather_backward,   // the same for the backward pass (ZeRO 3)
  quantize,          // weights, for products below 16 bits, once a step (spec/program/narrow.h)
  receive,           // activations from the previous virtual stage
  forward,           // of the head with loss and its gradient
  send,              // activations to the next virtual stage
  receive_gradient,  // from the next virtual stage
  backward,          // input gradients
  weight_gradient,
  send_gradient,  // to the previous virtual stage
  offload,        // activations, to the host
  reduce,         // gradients, over the ranks that hold the same parameters
  norm,           // loss and squared norm over all ranks, and from them the factors of the update
  update,         // optimizer
  evaluate,
  save,
};
inline constexpr size_t kActionKinds = static_cast<size_t>(ActionKind::save) + 1;
const char* action_name(ActionKind kind);

// Parts that are neither a layer (spec/mesh/zero_layers.h numbers them) nor a bucket
// (spec/mesh/zero.h).
inline constexpr int64_t kWholePart = -16;       // of a chunk, or of the step
inline constexpr int64_t kTiedTable = -17;       // the token table's gradient, over both its ends
inline constexpr int64_t kTensorCopies = -18;    // gradients of what tensor parallel ranks all hold
inline constexpr int64_t kRouterLoads = -19;     // tokens that each expert was sent
inline constexpr int64_t kSelectionBias = -20;   // of the routers
inline constexpr int64_t kOptimizerState = -21;  // masters and moments

struct Action {
  ActionKind kind = ActionKind::forward;
  int64_t micro = 0;          // micro-batch; 0 where it has no meaning
  int64_t chunk = 0;          // of this rank's layers: virtual stage chunk * pp + stage
  int64_t part = kWholePart;  // what of it; step_list.h says what of which action
  bool operator==(const Action&) const = default;
};

struct Schedule {
  Mesh mesh;
  int64_t micro_batches = 1;
  int64_t evaluate_every_steps = 0;  // 0: not in steps
  int64_t evaluate_skip_first = 0;   // regular evaluations left out at the start
  int64_t save_every_steps = 0;
};

Schedule make_schedule(const Recipe& recipe);

// Steps between regular evaluations, every_samples rounded up to whole steps; 0: only at the end.
int64_t evaluation_interval(const Recipe& recipe);

// Whether a regular evaluation comes after `step` (1 for the first).
bool evaluation_due(const Recipe& recipe, int64_t step);

// The passes alone: forward, backward and weight_gradient actions of pipeline rank `stage`.
std::vector<Action> pass_order(const Mesh& mesh, int64_t micro_batches, int64_t stage);

// Everything pipeline rank `stage` does in `step` (1 for the first).
std::vector<Action> step_actions(const Schedule& schedule, int64_t stage, int64_t step);

// Most chunks whose activations are held at once on pipeline rank `stage`, in closed form.
int64_t peak_in_flight(const Mesh& mesh, int64_t micro_batches, int64_t stage);

// Most micro-batches whose input gradient is done and whose weight gradient is not, on pipeline
// rank `stage`; 0 where each weight gradient follows its input gradient, layer by layer.
int64_t peak_delayed(const Mesh& mesh, int64_t micro_batches, int64_t stage);

// The most of sum over chunks c of weight[c] * (in-flight micro-batches of chunk c), over the step:
// layers, for weight[c] = layers of chunk c.
int64_t peak_in_flight_weighted(const Mesh& mesh, int64_t micro_batches, int64_t stage,
                                const std::vector<int64_t>& weight);

// The same of micro-batches of one chunk alone.
int64_t peak_in_flight_of_chunk(const Mesh& mesh, int64_t micro_batches, int64_t stage,
                                int64_t chunk);

}  // namespace tutti::spec
