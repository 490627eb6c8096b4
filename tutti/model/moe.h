// Feed-forward as a mixture of experts: a router chooses top_k experts for every token, each expert
// is a small MLP, and a token's result is the weighted sum of its experts' (plus the shared
// experts', which are one MLP that every token passes). engine/moe_ops.h states routing, weights
// and losses.
//
// The router computes in f32 from operands of the compute type. Without a capacity every copy finds
// its expert; with one, an expert takes the earliest tokens of each sequence
// (spec::expert_capacity) and a dropped copy adds nothing. Evaluation drops as training does;
// generation never drops.
//
// Of tensor parallel ranks each has some columns of every expert and of the shared ones. A row is
// routed by the rank that holds it between projections, so all ranks have the same choices and
// weights, to the bit; then each sends all N rows through its part of the experts, and what comes
// out, forward and backward, is a sum over these ranks (linear.h).
//
// Biases of experts are added to their products. That of the second is the same on all tensor
// parallel ranks: the first of them adds it, and each has an equal share of its gradient.
//
// Tensors as spec/model/params.h names them. Of Hugging Face's Mixtral block_sparse_moe:
// gate.weight is router.weight [E, H]; expert e's w1 (gate) and w3 (up) are rows [0, Fe) and [Fe,
// 2Fe) of experts.gate_up.weight[e] [2Fe, H], its w2 (down) is experts.down.weight[e] [H, Fe].
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/engine/stream.h"
#include "tutti/model/attention.h"
#include "tutti/model/linear.h"
#include "tutti/model/mlp.h"
#include "tutti/model/tensor_parallel.h"
#include "tutti/spec/model/config.h"

namespace tutti::model {

// For tests, which record what routers choose or make them choose the same again: rounding decides
// between experts that are nearly equal. Called on the rank's own thread.
struct RoutingTape {
  // Whether `experts` [n, k] now holds the choices of layer `layer` for these rows.
  std::function<bool(int64_t layer, const OwnRows& rows, engine::Matrix experts)> give;
  // What was chosen: experts [n, k], from probabilities [n, E].
  std::function<void(int64_t layer, const OwnRows& rows, engine::Matrix experts,
                     engine::Matrix probabilities)>
      take;
};

// Of the copies of one layer and micro-batch: boundaries as MoeSaved has them in `offsets` and
// `received`.
struct CopyBoundaries {
  std::vector<int32_t> sent, received;  // [E+1] each
};

// What the host knows of exchanges where it says how much each one carries. Boundaries are kept
// from a layer's forward pass to its backward pass, under the layer's number and `flight`.
struct ExchangeSizes {
  std::map<std::pair<int64_t, int64_t>, CopyBoundaries> boundaries;
  std::vector<int64_t> counts;  // [2 ep]: elements to and from each rank in the call at hand
};

// What experts on several ranks need besides: E/ep of them are here. Copies travel in pieces of
// piece_rows, of which all is sent, or, with piece_rows 0, as many as there are: then the host
// counts.
struct ExpertExchange {
  comm::Group* group = nullptr;  // null: all experts are here
  engine::Matrix copies;         // [copies, H] c: on their way to the experts or back from them
  engine::Matrix results;        // [R, H] c: of this rank's experts
  int64_t piece_rows = 0;
  engine::Vector sizes;           // [E] i32: copies for each expert, with piece_rows 0
  ExchangeSizes* host = nullptr;  // of all layers, with piece_rows 0
  int64_t flight = 0;             // which of the micro-batches under way
};

// Of sequences on several ranks.
struct SequenceParts {
  comm::Group* group = nullptr;  // null: sequences are whole
  engine::Matrix counts;         // [cp * 2B, E] i32
  engine::Matrix before;         // [2B, E] i32
};

struct MoeLayer {
  spec::MixtureOfExperts config;  // experts 0: the block has a dense MLP instead
  int64_t number = 0;             // of the layer in the model
  comm::Group* tp = nullptr;
  ExpertExchange exchange;
  SequenceParts parts;
  const RoutingTape* tape = nullptr;
  engine::Activation activation = engine::Activation::swiglu;
  Linear router;                  // [H] -> [E]
  engine::Vector selection_bias;  // [E] c, may be empty
  Linear
      up;  // with biases [E*outputs]: E times [H] -> [Fe] or gate | up [2Fe], one below the other
  Linear down;             // E times [Fe] -> [H]
  MlpLayer shared;         // with config.shared_experts
  float balance_loss = 0;  // weights of the losses, divided by the number of routed layers
  float z_loss = 0;

  explicit operator bool() const { return config.experts > 0; }
};

// R: room for copies, spec::LocalSizes::routed_tokens; n: this rank's own rows. Where experts are
// on several ranks, offsets and positions speak of this rank's copies, sorted by expert and so by
// rank; `received` of those that its experts got: by rank they came from, then by expert.
struct MoeSaved {
  engine::Matrix probabilities;  // [n, E] f32
  engine::Vector lse;            // [n] f32
  engine::Matrix experts;        // [N, k] i32
  engine::Matrix weights;        // [N, k] f32
  engine::Matrix positions;      // [N, k] i32
  engine::Matrix counts;         // [B, E] i32, of whole sequences
  engine::Vector offsets;        // [E+1] i32; in pieces [E+ep]
  engine::Vector received;       // as offsets; empty when all experts are here
  engine::Matrix input;          // [R, H] c: the copies
  engine::Matrix pre;            // [R, Fe] or [R, 2Fe] c
  engine::Matrix act;            // [R, Fe] c
  engine::Matrix output;         // [R, H] c, not weighted; [copies, H] back from their experts
  MlpSaved shared;
};

struct MoeWork {
  engine::Matrix d_output;   // [R, H] c
  engine::Matrix d_act;      // [R, Fe] c
  engine::Matrix d_pre;      // [R, Fe] or [R, 2Fe] c; for gelu the same memory as d_act
  engine::Matrix d_input;    // [R, H] c
  engine::Matrix d_weights;  // [N, k] f32
  engine::Matrix d_logits;   // [n, E] c
  MlpWork shared;
  engine::Vector load;  // [E] f32: choices of each expert in this step
  engine::Vector sums;  // [3] f32: balance losses, z losses, dropped copies of this step
};

// What of a forward pass to compute; the rest is in `saved` already.
struct MoeSteps {
  bool route = true;  // logits to copies
  bool up = true;
  bool activation = true;
  bool down = true;
  bool combine = true;  // the weighted sum, with the shared experts' last projection
  MlpSteps shared;
};

// How the auxiliary losses of one micro-batch count in its step.
struct RoutingStep {
  float row_scale = 0;  // 1 / rows of the step
  bool first = true;    // of the step: sums start anew
};

// What goes in: of this rank's own rows and of all. One rank alone has the same twice.
struct MoeInput {
  engine::Matrix own;    // [n, H] c
  OwnRows numbers = {};  // of these
  engine::Matrix all;    // [N, H] c; may be `branch`, empty where no step reads it
};
bool reads_all_rows(const MoeLayer& layer, const MoeSteps& steps);

// branch [N, H] c = moe(x), of tensor parallel ranks to be added up. With experts on several ranks
// and no pieces the host waits twice in each forward pass that routes, for how many copies there
// are: without a capacity any rank may get all, and exchanges of the largest size would carry ep
// times as much. Throws unsupported when this rank's experts then get more copies than it has room
// for.
void moe_forward(engine::Stream& stream, const MoeLayer& layer, BatchShape shape, const MoeInput& x,
                 const MoeSaved& saved, engine::Matrix branch, const MoeSteps& steps = {});

// dx [N, H] c from d_branch and the auxiliary losses, of tensor parallel ranks to be added up.
void moe_backward_input(engine::Stream& stream, const MoeLayer& layer, BatchShape shape,
                        const RoutingStep& step, const MoeSaved& saved, engine::Matrix d_branch,
                        const MoeWork& work, engine::Matrix dx);

// x: own rows; all: the shared experts' input, where there are any. Nothing when they are frozen.
void moe_backward_weight(engine::Stream& stream, const MoeLayer& layer, engine::Matrix x,
                         engine::Matrix all, const MoeSaved& saved, engine::Matrix d_branch,
                         const MoeWork& work, float beta);

}  // namespace tutti::model
