// Feed-forward network as a mixture of experts: a router selects top_k experts for every token,
// each expert is a small MLP, and a token's output is the weighted sum of its experts' outputs
// (plus that of the shared experts, which are one MLP that processes every token). engine/moe_ops.h
// defines routing, weights and losses.
//
// The router computes in f32 from operands of the compute type. Without a capacity every copy
// reaches its expert; with one, an expert takes the earliest tokens of each sequence
// (spec::expert_capacity) and a dropped copy adds nothing. Evaluation drops tokens as training
// does; generation never does.
//
// With tensor parallelism each rank has some columns of every expert and of the shared ones. The
// rank that holds a row between projections routes it, so all ranks have bitwise the same routing;
// each then sends all N rows through its part of the experts, and the results, forward and
// backward, are to be summed over these ranks (linear.h).
//
// Biases of experts are added to their products. The bias of the second product is replicated over
// tensor parallel ranks: the first rank adds it, and each has an equal share of its gradient.
//
// Tensors have the names of spec/model/params.h. In Hugging Face's Mixtral block_sparse_moe:
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

// For tests, which record routing or replay it: rounding decides between nearly equal experts.
// Called on the rank's own thread.
struct RoutingTape {
  // Whether `experts` [n, k] now holds the choices of layer `layer` for these rows.
  std::function<bool(int64_t layer, const OwnRows& rows, engine::Matrix experts)> give;
  // Receives the routing: experts [n, k], from probabilities [n, E].
  std::function<void(int64_t layer, const OwnRows& rows, engine::Matrix experts,
                     engine::Matrix probabilities)>
      take;
};

// Of the copies of one layer and micro-batch: boundaries like MoeSaved::offsets and
// MoeSaved::received.
struct CopyBoundaries {
  std::vector<int32_t> sent, received;  // [E+1] each
};

// Sizes of exchanges that the host determines. Boundaries are kept from a layer's forward pass to
// its backward pass, by layer number and in-flight index.
struct ExchangeSizes {
  std::map<std::pair<int64_t, int64_t>, CopyBoundaries> boundaries;
  std::vector<int64_t> counts;  // [2 ep]: elements to and from each rank in the current call
};

// Expert parallelism: E/ep experts are on this rank. Copies are exchanged in pieces of piece_rows
// rows, all of which are sent, or, with piece_rows 0, in their actual number, which the host then
// counts.
struct ExpertExchange {
  comm::Group* group = nullptr;  // null: all experts are on this rank
  engine::Matrix copies;         // [copies, H] c: sent to the experts or received from them
  engine::Matrix results;        // [R, H] c: outputs of this rank's experts
  int64_t piece_rows = 0;
  engine::Vector sizes;           // [E] i32: copies for each expert, with piece_rows 0
  ExchangeSizes* host = nullptr;  // shared by all layers, with piece_rows 0
  int64_t in_flight = 0;          // index of the in-flight micro-batch
};

// For sequences split over several ranks.
struct SequenceParts {
  comm::Group* group = nullptr;  // null: sequences are not split
  engine::Matrix counts;         // [cp * 2B, E] i32
  engine::Matrix before;         // [2B, E] i32
};

struct MoeLayer {
  spec::MixtureOfExperts config;  // experts 0: the block has a dense MLP instead
  int64_t number = 0;             // number of the layer in the model
  comm::Group* tp = nullptr;
  ExpertExchange exchange;
  SequenceParts parts;
  const RoutingTape* tape = nullptr;
  engine::Activation activation = engine::Activation::swiglu;
  Linear router;                  // [H] -> [E]
  engine::Vector selection_bias;  // [E] c, may be empty
  engine::RouterScores scores = engine::RouterScores::softmax;
  engine::RouterGroups groups;
  // E times [H] -> [Fe] or gate | up [2Fe], one below the other; with biases [E*outputs].
  Linear up;
  Linear down;             // E times [Fe] -> [H]
  MlpLayer shared;         // with config.shared_experts
  float balance_loss = 0;  // weights of the losses, divided by the number of routed layers
  float z_loss = 0;

  explicit operator bool() const { return config.experts > 0; }
};

// R: capacity for copies, spec::LocalSizes::routed_tokens; n: this rank's own rows. With expert
// parallelism, offsets and positions refer to this rank's copies, sorted by expert and so by rank;
// `received` to those that its experts received: by source rank, then by expert.
struct MoeSaved {
  engine::Matrix probabilities;  // [n, E] f32
  engine::Vector lse;            // [n] f32
  engine::Matrix experts;        // [N, k] i32
  engine::Matrix weights;        // [N, k] f32
  engine::Matrix positions;      // [N, k] i32
  engine::Matrix counts;         // [B, E] i32, per full sequence
  engine::Vector offsets;        // [E+1] i32; with pieces [E+ep]
  engine::Vector received;       // like offsets; empty if all experts are on this rank
  engine::Matrix input;          // [R, H] c: the copies
  engine::Matrix pre;            // [R, Fe] or [R, 2Fe] c
  engine::Matrix act;            // [R, Fe] c
  engine::Matrix output;  // [R, H] c, unweighted; [copies, H] after the return from their experts
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
  engine::Vector load;  // [E] f32: times that each expert was selected in this step
  engine::Vector sums;  // [3] f32: balance losses, z losses, dropped copies of this step
};

// Steps of a forward pass to compute; the results of the others are already in `saved`.
struct MoeSteps {
  bool route = true;  // from logits to copies
  bool up = true;
  bool activation = true;
  bool down = true;
  bool combine = true;  // the weighted sum, with the shared experts' last projection
  MlpSteps shared;
};

// Weighting of the auxiliary losses of one micro-batch in its step.
struct RoutingStep {
  float row_scale = 0;  // 1 / rows of the step
  bool first = true;    // of the step: resets the sums
};

// Input rows: this rank's own and all. For a single rank both are the same.
struct MoeInput {
  engine::Matrix own;    // [n, H] c
  OwnRows numbers = {};  // of the own rows
  engine::Matrix all;    // [N, H] c; may be `branch`; empty if no step reads it
};
bool reads_all_rows(const MoeLayer& layer, const MoeSteps& steps);

// branch [N, H] c = moe(x), to be summed over tensor parallel ranks. With expert parallelism and no
// pieces the host synchronizes twice in each forward pass that routes, to learn the numbers of
// copies: without a capacity any rank may receive all of them, and exchanges of the largest size
// would carry ep times as much. Throws unsupported if this rank's experts then receive more copies
// than it has memory for.
void moe_forward(engine::Stream& stream, const MoeLayer& layer, BatchShape shape, const MoeInput& x,
                 const MoeSaved& saved, engine::Matrix branch, const MoeSteps& steps = {});

// dx [N, H] c from d_branch and the auxiliary losses, to be summed over tensor parallel ranks.
void moe_backward_input(engine::Stream& stream, const MoeLayer& layer, BatchShape shape,
                        const RoutingStep& step, const MoeSaved& saved, engine::Matrix d_branch,
                        const MoeWork& work, engine::Matrix dx);

// x: own rows; all: input of the shared experts, if there are any. Does nothing if they are frozen.
void moe_backward_weight(engine::Stream& stream, const MoeLayer& layer, engine::Matrix x,
                         engine::Matrix all, const MoeSaved& saved, engine::Matrix d_branch,
                         const MoeWork& work, float beta);

}  // namespace tutti::model
