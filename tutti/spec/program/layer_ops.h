// The operations of one kind of layer on one rank for one micro-batch, forward and backward.
//
// Sequence of profile tutti: a block's input is the previous residual and a branch still to be
// added; the norm adds it. Under tensor parallelism the projections are split over columns, then
// rows; with sequence parallel, all-gather before and reduce-scatter after each pair, else one
// all-reduce; weight gradients gather the norm's output again. Context parallel ranks pass
// keys and values around. Expert weights are split over ep (whole experts) and tp (their width).
#pragma once

#include <string>
#include <vector>

#include "tutti/spec/program/operation.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

struct LayerOps {
  std::string kind;           // "embedding", "block", "moe", "head", "teacher.block", ...
  std::vector<Op> forward;    // head: with loss and gradient of the logits
  std::vector<Op> evaluate;   // forward without dropout and gradients
  std::vector<Op> recompute;  // forward operations that run again before backward
  std::vector<Op> backward_input;
  std::vector<Op> backward_weight;
};

struct BlockShape {
  bool routed = false;  // mixture of experts instead of the dense MLP
  // Its input comes with a branch to be added, whose gradient the layer below wants (not the first
  // of a stage).
  bool adds_branch = true;
  bool sends_gradient = true;  // something below wants the gradient of its input (not block 0)
  bool recomputes = false;     // Recompute::covers it
  bool wide = false;           // NarrowConfig keeps it in 16 bits
  int64_t window = 0;          // window_of
  bool rotated = true;         // is_rotated
};

LayerOps embedding_ops(const Recipe& recipe, const Profile& profile);
LayerOps block_ops(const Recipe& recipe, const Profile& profile, const BlockShape& shape);
// After the last block of a stage that is not the last: adds the open branch before sending;
// backward makes the branch's gradient from what was received.
LayerOps tail_ops(const Recipe& recipe, const Profile& profile);
// Final norm, head, loss; the head's input gradient and weight gradient run in the same pass.
LayerOps head_ops(const Recipe& recipe, const Profile& profile);
// The final norm of a teacher (spec/recipe/distill.h), whose head works chunk by chunk in head_ops;
// and a layer of one as its pass in training: forward, and nothing else.
LayerOps teacher_head_ops(const Recipe& teacher, const Profile& profile);
LayerOps as_teacher(const LayerOps& layer);
// A multi-token-prediction module (DeepSeek-V3): two norms, projection, block, norm, head, loss.
LayerOps prediction_ops(const Recipe& recipe, const Profile& profile);

// The operations of `layer` that write gradients of weights. Where layers take turns in the memory
// of gradients (ZeRO 2 and 3), every micro-batch overwrites them: Op::first_bytes always hold.
std::vector<Op*> gradient_ops(LayerOps& layer);

}  // namespace tutti::spec
