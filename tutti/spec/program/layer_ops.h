// The operations of one kind of layer on one rank for one micro-batch, forward and backward.
//
// Order in profile tutti: a block's input is the previous residual and a branch that the norm adds
// to it. Tensor parallelism splits the projections over columns, then rows; with sequence
// parallelism there is an all-gather before and a reduce-scatter after each pair, else one
// all-reduce; weight gradients gather the norm's output again. Context parallel ranks pass keys and
// values around a ring. Expert weights are split over ep (whole experts) and tp (their width).
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
  std::vector<Op> recompute;  // forward operations that are recomputed before the backward pass
  std::vector<Op> backward_input;
  std::vector<Op> backward_weight;
};

struct BlockShape {
  bool routed = false;  // mixture of experts instead of the dense MLP
  // Its input comes with a branch to add, whose gradient the layer below needs (not the first block
  // of a stage).
  bool adds_branch = true;
  bool sends_gradient = true;  // a layer below needs the gradient of its input (not block 0)
  bool recomputes = false;     // covered by Recompute::covers
  bool wide = false;           // NarrowConfig keeps it in 16 bits
  int64_t window = 0;          // window_of
  bool rotated = true;         // is_rotated
};

LayerOps embedding_ops(const Recipe& recipe, const Profile& profile);
LayerOps block_ops(const Recipe& recipe, const Profile& profile, const BlockShape& shape);
// After the last block of any stage but the last: adds the open branch before sending; the backward
// pass computes the branch's gradient from the received one.
LayerOps tail_ops(const Recipe& recipe, const Profile& profile);
// Final norm, head, loss; input and weight gradients of the head run in the same pass.
LayerOps head_ops(const Recipe& recipe, const Profile& profile);
// The final norm of a teacher (spec/recipe/distill.h), whose head runs chunk by chunk in head_ops;
// and a layer of a teacher in training: the forward pass only.
LayerOps teacher_head_ops(const Recipe& teacher, const Profile& profile);
LayerOps as_teacher(const LayerOps& layer);
// A multi-token-prediction module (DeepSeek-V3): two norms, projection, block, norm, head, loss.
LayerOps prediction_ops(const Recipe& recipe, const Profile& profile);

// The operations of `layer` that write gradients of weights. If layers share the memory of
// gradients in turn (ZeRO 2 and 3), every micro-batch overwrites them: Op::first_bytes always hold.
std::vector<Op*> gradient_ops(LayerOps& layer);

}  // namespace tutti::spec
