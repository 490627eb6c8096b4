// One transformer layer: x += attention(norm1(x)); x += mlp(norm2(x)), where mlp is dense or a
// mixture of experts. A model may also normalize the outputs of attention and mlp before they are
// added, besides or instead of their inputs (spec::NormPlacement), and scale them.
//
// The residual stream is f32. Additions are fused into the following norm: a block receives the
// previous residual and the branch to add, and passes on its own last branch.
//
// With tensor parallelism (tensor_parallel.h) norms, residual, routers and dropout process this
// rank's own rows, n = N / tp, and attention and mlp all N rows. Rows are all-gathered before them,
// and their outputs reduce-scattered, in the same buffers: those with N rows below.
#pragma once

#include <optional>

#include "tutti/engine/stream.h"
#include "tutti/model/attention.h"
#include "tutti/model/mlp.h"
#include "tutti/model/moe.h"
#include "tutti/model/norm.h"
#include "tutti/model/tensor_parallel.h"

namespace tutti::model {

struct BlockLayer {
  NormLayer norm1;
  AttentionLayer attention;
  NormLayer attention_norm;  // of the branch, optional
  NormLayer norm2;
  MlpLayer mlp;                   // dense
  NormLayer mlp_norm;             // of the branch, optional
  MoeLayer moe;                   // instead of mlp
  float residual_multiplier = 1;  // of both branches
  float dropout = 0;
  float adapter_dropout = 0;
  uint64_t attention_dropout_key = 0;  // of the attention branch
  uint64_t mlp_dropout_key = 0;
  comm::Group* tp = nullptr;
};

struct BlockSaved {
  NormSaved norm1;  // norm1.residual [n, H] f32 is the block's input
  AttentionSaved attention;
  NormSaved norm2;
  MlpSaved mlp;
  MoeSaved moe;
  BranchNormSaved attention_branch;
  BranchNormSaved mlp_branch;
};

// Steps of a forward pass to compute; the results of the others are already in BlockSaved. With
// attention's output step norm2 has a branch to add; without it norm2 reads the kept sum.
struct BlockSteps {
  bool norm1 = true;
  AttentionSteps attention;
  bool norm2 = true;
  MlpSteps mlp;
  MoeSteps moe;
};

struct BlockWork {
  engine::Matrix branch;         // [N, H] c: the branch to add next
  engine::Matrix d_residual;     // [n, H] f32: gradient of the residual stream
  engine::Matrix d_branch;       // [N, H] c: incoming gradient of the mlp branch
  engine::Matrix d_branch_next;  // [N, H] c: outgoing, for the previous block; empty in the first
  engine::Matrix d_branch_attention;  // [N, H] c
  engine::Matrix d_norm1;             // [N, H] c
  engine::Matrix d_norm2;             // [N, H] c
  // Where the amax of the branches' gradients is stored for products below 16 bits, [1] f32; the
  // producer of d_branch may not have stored it.
  engine::Magnitude d_branch_amax;
  engine::Vector d_branch_next_amax;
  engine::Vector d_branch_attention_amax;
  AttentionWork attention;
  MlpWork mlp;
  MoeWork moe;
  float norm_beta = 1;  // of the gradients of branches' norms
};

// first_row: number of the micro-batch's first row.
OwnRows own_row_numbers(const comm::Group* tp, const BatchShape& shape, int64_t first_row);

// first_row: global number of the micro-batch's first row, which keys dropout. The branch to add
// next is in this rank's own rows of work.branch, its gradient in those of d_branch. previous is
// empty if the block's input is already in saved.norm1.residual: in the first block, and when
// `steps` restore what was dropped after the forward pass (bind.h, bind_block_restore).
void block_forward(engine::Stream& stream, const BlockLayer& layer, BatchShape shape,
                   int64_t first_row, engine::Matrix previous, const BlockSaved& saved,
                   const BlockWork& work, const BlockSteps& steps = {});

// Updates d_residual and the gradients of the weights of branch, query and key norms and of
// attention sinks; leaves in `work` what block_backward_weight needs. Blocks with experts use
// `routing`. If only adapters are trained, nothing below the first of them in the first block needs
// a gradient: what is empty in `work` is not computed, nor anything before it. With norm_beta it
// also computes the gradients of the other norms' weights, which block_backward_weight then omits
// (norms false).
void block_backward_input(engine::Stream& stream, const BlockLayer& layer, BatchShape shape,
                          int64_t first_row, const RoutingStep& routing, const BlockSaved& saved,
                          const BlockWork& work, std::optional<float> norm_beta = {});

void block_backward_weight(engine::Stream& stream, const BlockLayer& layer, BatchShape shape,
                           int64_t first_row, const BlockSaved& saved, const BlockWork& work,
                           float beta, bool norms = true);

}  // namespace tutti::model
