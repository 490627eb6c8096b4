#include "tutti/spec/program/layer_ops.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "tutti/base/real.h"
#include "tutti/spec/program/layer_builder.h"

namespace tutti::spec {
namespace {

Op residual_add_op(const LayerContext& at) {
  const double all = real(at.shard() * at.hidden());
  return memory_op("residual_add", {at.shard(), at.hidden()},
                   all * (2 * real(dtype_bytes(at.residual)) + real(dtype_bytes(at.c))));
}

// A norm whose input is the residual plus a branch; unfused profiles add the branch first.
void add_norm(const LayerContext& at, Ops& ops, bool branch) {
  if (branch && !at.profile.fused_residual) {
    ops.push_back(residual_add_op(at));
    branch = false;
  }
  ops.push_back(norm_forward_op(at.norm(), branch));
}

// Replaces the norm before attention or MLP in models whose norms come after them.
void add_input(const LayerContext& at, Ops& ops, bool branch) {
  if (at.model.norm_placement != NormPlacement::after) return add_norm(at, ops, branch);
  if (branch) ops.push_back(add_op(at.shard(), at.hidden(), at.residual, at.c, at.residual));
  ops.push_back(copy_op(at.shard(), at.hidden(), at.residual, at.c));
}

void add_input_gradient(const LayerContext& at, Ops& ops, bool d_branch) {
  if (at.model.norm_placement != NormPlacement::after) {
    ops.push_back(at.norm_input(true, d_branch));
    return;
  }
  ops.push_back(add_op(at.shard(), at.hidden(), at.residual, at.c, at.residual));
  if (d_branch) ops.push_back(copy_op(at.shard(), at.hidden(), at.residual, at.c));
}

PartOps feed_forward_part(const LayerContext& at, bool routed) {
  if (routed) {
    PartOps part = experts_part(at);
    if (at.frozen()) part.backward_weight.clear();
    return part;
  }
  const PartOps mlp = mlp_part(at, at.model.ffn / at.mesh.tp);
  PartOps part;
  at.enter_product(part.forward);
  append(part.forward, mlp.forward);
  at.leave(part.forward);
  at.enter_product(part.backward_input);
  append(part.backward_input, mlp.backward_input);
  if (!at.ends_at(Projection::up) && !at.ends_at(Projection::down)) at.leave(part.backward_input);
  if (at.trains(Projection::up)) at.enter_product(part.backward_weight);  // the norm's output again
  append(part.backward_weight, mlp.backward_weight);
  if (at.repeats(kPartMlp)) at.enter_product(part.recompute);
  append(part.recompute, mlp.recompute);
  return part;
}

Ops without_dropout(const Ops& ops) {
  Ops kept;
  std::copy_if(ops.begin(), ops.end(), std::back_inserter(kept),
               [](const Op& op) { return std::string_view(op.name) != "dropout"; });
  return kept;
}

// Recomputed operations are hardware work, not model work.
Ops as_recomputed(Ops ops) {
  for (Op& op : ops) op.model_flops = 0;
  return ops;
}

// Products marked narrow become the profile's operations; gradients_once: of outputs, if the
// profile does that.
void describe_precision(const LayerContext& at, LinearProduct product, Ops& ops,
                        bool gradients_once = false) {
  if (!is_narrow(at.recipe.precision)) return;
  if (at.profile.executable) {
    quantize_operands(at.recipe.precision, product,
                      {gradients_once, at.profile.quantizes_weights_once}, ops);
  }
  const NarrowFormat* format = block_scaled_format(at.recipe.precision);
  if (format == nullptr) return;
  // Weight gradients read operands that earlier passes have quantized.
  describe_narrow(*format, product != LinearProduct::weight, ops);
}

// Head projection, loss and their gradients over all rows, chunk by chunk.
struct HeadPart {
  Ops training;
  Ops evaluation;
};

// For every chunk of a teacher's logits: the product, the same for all chunks of equal rows.
Op teacher_logits_op(const Recipe& recipe, const Profile& profile, int64_t rows) {
  const Recipe teacher = teacher_recipe(recipe);
  const LayerContext at(teacher, profile);
  Op op = gemm_op({rows, at.sizes.vocabulary, at.hidden()}, at.c, loss_logits_type(profile, at.c));
  op.model_flops *= real(at.model.vocabulary) / real(at.sizes.vocabulary);
  return op;
}

HeadPart head_part(const LayerContext& at, bool first_use_of_weight) {
  const int64_t padded = at.sizes.vocabulary;
  const int64_t vocabulary = at.mesh.tp == 1 ? at.model.vocabulary : padded;
  const int64_t chunk = loss_chunk_rows(at.profile, at.tokens(), padded);
  const DType type = loss_logits_type(at.profile, at.c);
  // Model work covers the unpadded vocabulary only.
  const auto unpadded = [&](Op op) {
    op.model_flops *= real(at.model.vocabulary) / real(padded * at.mesh.tp);
    return op;
  };
  HeadPart part;
  at.enter(part.training);
  at.enter(part.evaluation);
  for (int64_t first = 0; first < at.tokens(); first += chunk) {
    const int64_t rows = std::min(chunk, at.tokens() - first);
    const Op logits = unpadded(at.in_format(gemm_op({rows, padded, at.hidden()}, at.c, type)));
    Ops& out = part.training;
    Ops forward = {logits};
    describe_precision(at, LinearProduct::forward, forward);
    for (Ops* ops : {&part.training, &part.evaluation}) {
      append(*ops, forward);
      if (at.model.logit_softcap > 0) ops->push_back(softcap_op(rows, padded, type));
      if (at.divides_vocabulary()) {
        ops->push_back(cross_entropy_shard_op(rows, padded, type));
        // Log-sum-exp and target logit of every row and rank.
        const double statistics = real(rows) * real(at.mesh.tp) * 2 * 4;
        ops->push_back(collective_op("all_gather", Axis::tp, at.mesh.tp, statistics));
        ops->push_back(
            cross_entropy_merge_op(rows, padded, at.mesh.tp, type, at.c, ops == &part.training));
        continue;
      }
      if (at.mesh.tp > 1) {
        // Maximum, sum of exponentials and target logit of every row.
        ops->push_back(collective_op("all_reduce", Axis::tp, at.mesh.tp, real(rows) * 3 * 4));
      }
      if (ops == &part.training && at.recipe.distill.enabled()) {
        ops->push_back(teacher_logits_op(at.recipe, at.profile, rows));
        ops->push_back(distill_cross_entropy_op(rows, vocabulary, padded, type, at.c));
        continue;
      }
      ops->push_back(cross_entropy_op(rows, vocabulary, padded, type, at.c, ops == &part.training));
    }
    Ops input = {unpadded(at.in_format(gemm_op({rows, at.hidden(), padded}, at.c, at.c)))};
    describe_precision(at, LinearProduct::input, input);
    append(out, input);
    if (at.frozen()) continue;
    Ops weight = {unpadded(at.in_format(
        gemm_op({padded, at.hidden(), rows}, at.c, DType::f32, false,
                first == 0 && first_use_of_weight ? Accumulate::later : Accumulate::always)))};
    describe_precision(at, LinearProduct::weight, weight);
    append(out, weight);
  }
  at.leave(part.training);
  return part;
}

}  // namespace

LayerOps embedding_ops(const Recipe& recipe, const Profile& profile) {
  const LayerContext at(recipe, profile);
  LayerOps layer;
  layer.kind = "embedding";
  const bool positions = at.model.positions == Positions::learned;
  const EmbeddingShape shape = {
      at.tokens(), at.hidden(), positions, positions && at.given_positions(), at.c, at.residual};
  // Sharded tables: tokens of all rows in the compute type, positions of this rank's own rows.
  const EmbeddingShape lookup = {at.tokens(), at.hidden(), false, false, at.c, at.c};
  EmbeddingShape own = shape;
  own.rows = at.shard();
  layer.forward = {embedding_forward_op(at.divides_vocabulary() ? lookup : shape)};
  at.leave(layer.forward);
  if (at.divides_vocabulary()) layer.forward.push_back(add_positions_op(own));
  const bool scales = at.model.embedding_multiplier != 1;
  const Op multiply = copy_op(at.shard(), at.hidden(), at.residual, at.residual);
  if (scales) layer.forward.push_back(multiply);
  layer.evaluate = layer.forward;
  const Op mask = dropout_op(at.shard(), at.hidden(), at.residual, at.scattered());
  if (at.model.dropout > 0) layer.forward.push_back(mask);
  if (at.frozen()) return layer;  // no gradient is needed
  if (at.model.dropout > 0) layer.backward_input.push_back(mask);
  // A tied table already contains the head's gradient if both are on one stage.
  const bool holds_head = at.model.tied_embeddings && at.mesh.pp == 1;
  const int64_t token_rows = holds_head ? 0 : at.sizes.vocabulary;
  Ops& weight = layer.backward_weight;
  if (scales) weight.push_back(multiply);
  if (at.divides_vocabulary()) {
    if (positions) weight.push_back(position_backward_op(own, at.model.context));
    if (at.c != at.residual)
      weight.push_back(convert_op(at.shard() * at.hidden(), at.residual, at.c));
    at.enter(weight);
    weight.push_back(embedding_backward_op(lookup, token_rows, 0));
    return layer;
  }
  at.enter(weight);
  weight.push_back(embedding_backward_op(shape, token_rows, positions ? at.model.context : 0));
  return layer;
}

LayerOps block_ops(const Recipe& recipe, const Profile& profile, const BlockShape& shape) {
  LayerContext at(recipe, profile);
  if (shape.recomputes) {
    at.again = repeated_parts(profile, recipe.recompute);
    at.whole = recipe.recompute.mode == RecomputeMode::full;
  }
  at.lowest = at.frozen() && !shape.sends_gradient;
  at.wide = shape.wide;
  at.window = shape.window;
  at.rotated = shape.rotated;
  const PartOps attention = at.model.attention == Attention::latent ? latent_attention_part(at)
                                                                    : grouped_attention_part(at);
  const PartOps feed_forward = feed_forward_part(at, shape.routed);

  LayerOps layer;
  layer.kind = shape.routed ? "moe" : "block";
  if (!shape.adds_branch) layer.kind += shape.sends_gradient ? ".received" : ".first";
  if (shape.wide) layer.kind += ".wide";
  if (shape.window > 0) layer.kind += ".window";
  if (!shape.rotated && recipe.model.positions == Positions::rope) layer.kind += ".unrotated";
  const auto forward_from = [&](bool adds_branch) {
    Ops ops;
    add_input(at, ops, adds_branch);
    append(ops, attention.forward);
    at.end_branch(ops);
    at.dropout(ops);
    add_input(at, ops, true);
    append(ops, feed_forward.forward);
    at.end_branch(ops);
    at.dropout(ops);
    return ops;
  };
  layer.forward = forward_from(shape.adds_branch);
  layer.evaluate = without_dropout(layer.forward);

  Ops& input = layer.backward_input;
  at.dropout(input);
  at.branch_input(input);
  append(input, feed_forward.backward_input);
  if (!at.ends_at(Projection::up) && !at.ends_at(Projection::down)) {
    add_input_gradient(at, input, true);
    at.dropout(input);
    at.branch_input(input);
    append(input, attention.backward_input);
  }
  // The first block of a later stage passes down the gradient of the residual only, if it is wider
  // than the branch's.
  const bool branch = shape.adds_branch || (shape.sends_gradient && at.residual == at.c &&
                                            profile.residual != DType::f32);
  if (!at.lowest) add_input_gradient(at, input, branch);

  Ops& weight = layer.backward_weight;
  const bool norms = recipe.model.norm_placement != NormPlacement::after;
  append(weight, feed_forward.backward_weight);
  if (norms) at.norm_weight(weight);
  append(weight, attention.backward_weight);
  if (norms) at.norm_weight(weight);

  if (shape.recomputes) {
    Ops again;
    if (at.whole && profile.repeats_whole_forward) {
      again = forward_from(false);
    } else {
      if (at.repeats(kPartNorms)) add_input(at, again, false);
      append(again, attention.recompute);
      if (at.whole) at.end_branch(again);
      if (at.whole) at.dropout(again);
      if (at.repeats(kPartNorms)) add_input(at, again, at.whole);
      append(again, feed_forward.recompute);
    }
    layer.recompute = as_recomputed(std::move(again));
    layer.kind += ".recomputed";
  }
  for (Ops* ops : {&layer.forward, &layer.evaluate, &layer.recompute}) {
    describe_precision(at, LinearProduct::forward, *ops);
  }
  const bool once = profile.quantizes_gradients_once;
  describe_precision(at, LinearProduct::input, layer.backward_input, once);
  describe_precision(at, LinearProduct::weight, layer.backward_weight, once);
  return layer;
}

LayerOps tail_ops(const Recipe& recipe, const Profile& profile) {
  const LayerContext at(recipe, profile);
  LayerOps layer;
  layer.kind = "tail";
  // The sum that leaves the stage: its last branch is added to a copy.
  Op sum = residual_add_op(at);
  sum.name = "copy";
  layer.forward = {sum};
  layer.evaluate = layer.forward;
  if (profile.residual == DType::f32) {
    const int64_t count = at.shard() * at.hidden();
    const int64_t bytes = dtype_bytes(DType::f32) + dtype_bytes(at.c);
    layer.backward_input = {memory_op("convert", {count}, real(count * bytes))};
  }
  return layer;
}

LayerOps head_ops(const Recipe& recipe, const Profile& profile) {
  LayerContext at(recipe, profile);
  at.wide = !recipe.narrow.head;
  const HeadPart head = head_part(at, true);
  LayerOps layer;
  layer.kind = "head";
  add_norm(at, layer.forward, true);
  layer.evaluate = layer.forward;
  append(layer.forward, head.training);
  append(layer.evaluate, head.evaluation);
  layer.backward_input = {at.norm_input(false, true)};
  at.norm_weight(layer.backward_weight);
  return layer;
}

LayerOps teacher_head_ops(const Recipe& teacher, const Profile& profile) {
  const LayerContext at(teacher, profile);
  LayerOps layer;
  add_norm(at, layer.forward, true);
  layer.kind = "head";
  return layer;
}

LayerOps as_teacher(const LayerOps& layer) {
  LayerOps out;
  out.kind = kTeacherPrefix + layer.kind;
  out.forward = without_dropout(layer.forward);
  return out;
}

LayerOps prediction_ops(const Recipe& recipe, const Profile& profile) {
  const LayerContext at(recipe, profile);
  const bool routed = at.model.moe.experts > 0;
  const LayerOps block =
      block_ops(recipe, profile, {routed, false, true, recipe.recompute.covers(at.model.layers)});
  LayerContext at_head(recipe, profile);
  at_head.wide = !recipe.narrow.head;
  const HeadPart head = head_part(at_head, false);
  const int64_t hidden = at.hidden();
  const EmbeddingShape embedding = {at.tokens(), hidden, false, false, at.c, at.residual};

  LayerOps layer;
  layer.kind = "prediction";
  layer.forward = {embedding_forward_op(embedding), norm_forward_op(at.norm(), false),
                   norm_forward_op(at.norm(), false),
                   at.linear(at.shard(), hidden, 2 * hidden, false)};
  append(layer.forward, block.forward);
  add_norm(at, layer.forward, true);
  append(layer.forward, head.training);
  layer.recompute = block.recompute;

  layer.backward_input = {norm_backward_input_op(at.norm(), false, true)};
  append(layer.backward_input, block.backward_input);
  layer.backward_input.push_back(at.linear_input(at.shard(), hidden, 2 * hidden));
  layer.backward_input.push_back(norm_backward_input_op(at.norm(), true, false));
  layer.backward_input.push_back(norm_backward_input_op(at.norm(), true, false));

  layer.backward_weight = {norm_backward_weight_op(at.norm())};
  append(layer.backward_weight, block.backward_weight);
  at.linear_weight(layer.backward_weight, at.shard(), hidden, 2 * hidden, false);
  layer.backward_weight.push_back(norm_backward_weight_op(at.norm()));
  layer.backward_weight.push_back(norm_backward_weight_op(at.norm()));
  layer.backward_weight.push_back(embedding_backward_op(embedding, 0, 0));
  return layer;
}

std::vector<Op*> gradient_ops(LayerOps& layer) {
  std::vector<Op*> out;
  for (Op& op : layer.backward_weight) out.push_back(&op);
  for (Op& op : layer.backward_input) {  // norms and sinks write gradients of weights there
    const std::string_view name = op.name;
    if (name == "rms_norm_backward" || name == "norm_backward_input" ||
        name == "attention_sink_backward") {
      out.push_back(&op);
    }
  }
  if (layer.kind == "head") {  // its pass runs forward and backward
    for (Op& op : layer.forward) out.push_back(&op);
  }
  return out;
}

}  // namespace tutti::spec
