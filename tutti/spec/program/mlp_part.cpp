#include "tutti/base/real.h"
#include "tutti/spec/program/layer_builder.h"

namespace tutti::spec {
// Without collectives: the caller gathers and scatters.
PartOps mlp_part(const LayerContext& at, int64_t width) {
  const bool up_bias = has_bias(at.model, Projection::up);
  const bool down_bias = has_bias(at.model, Projection::down);
  const int64_t up = (at.gated() ? 2 : 1) * width;
  const ActivationShape activation = {at.tokens(), width, at.gated(), up_bias, at.c};
  PartOps part;
  // The first bias is added by the activation, the second by its projection.
  Ops first;
  at.projection_forward(first, Projection::up, up, at.hidden(), false);
  part.forward = first;
  part.forward.push_back(activation_forward_op(activation));
  at.projection_forward(part.forward, Projection::down, at.hidden(), width, down_bias);
  if (at.repeats(kPartMlp)) part.recompute = first;
  if (at.alternates(kPartMlp) && at.gated()) {  // the up half of gate and up
    part.recompute.push_back(at.linear(at.tokens(), width, at.hidden(), false));
  }
  if (at.repeats(kPartMlp | kPartActivation)) {
    part.recompute.push_back(activation_forward_op(activation));
  }
  at.projection_weight(part.backward_weight, Projection::down, at.hidden(), width, down_bias);
  at.projection_weight(part.backward_weight, Projection::up, up, at.hidden(), up_bias);
  at.projection_input(part.backward_input, Projection::down, at.hidden(), width);
  if (at.ends_at(Projection::down)) return part;
  part.backward_input.push_back(activation_backward_op(activation));
  at.projection_input(part.backward_input, Projection::up, up, at.hidden());
  return part;
}

namespace {

// The rows of the routed copies. For sequences on several ranks, the counts of earlier parts and of
// all parts come from these ranks; only a capacity needs them here.
void assign_rows(const LayerContext& at, const RouterShape& router, Ops& ops) {
  if (at.mesh.cp == 1 || !at.profile.executable) {
    ops.push_back(assign_rows_op(router));
    return;
  }
  RouterShape parts = router;
  parts.sequences *= 2;
  ops.push_back(assign_rows_op(parts));
  ops.push_back(collective_op("all_gather", Axis::cp, at.mesh.cp,
                              real(at.mesh.cp * parts.sequences * router.experts) * 4));
  ops.push_back(merge_counts_op(router, at.mesh.cp));
  if (at.model.moe.capacity_factor == 0) return;
  Op within = assign_rows_op(parts);
  const double before = real(parts.sequences * router.experts) * 4;
  within.bytes += before;
  within.first_bytes += before;
  ops.push_back(within);
}

}  // namespace

PartOps experts_part(const LayerContext& at) {
  const MixtureOfExperts& moe = at.model.moe;
  const int64_t groups = moe.experts / at.mesh.ep;
  const int64_t rows = at.sizes.chosen_copies;  // that a rank sends, and on average receives
  const int64_t most_rows = at.sizes.copies;  // more with pieces: the hosts do not know their fill
  const int64_t pieces = at.sizes.piece_rows > 0 ? at.mesh.ep : 1;
  const int64_t width = moe.expert_ffn / at.mesh.tp;
  const int64_t up = (at.gated() ? 2 : 1) * width;
  const double model_rows = real(at.tokens() * moe.top_k);
  const double element = real(dtype_bytes(at.c));
  const double copies_bytes = real(most_rows) * real(at.hidden()) * element;
  const ActivationShape activation = {most_rows, width, at.gated(), false, at.c};
  // The number of copies per expert, which the backward pass already knows; with pieces, where they
  // end.
  const int64_t boundaries = moe.experts + (pieces > 1 ? pieces : 0);
  const auto exchange_counts = [&](Ops& ops) {
    if (at.mesh.ep == 1 || !at.profile.executable) return;
    ops.push_back(collective_op("all_to_all", Axis::ep, at.mesh.ep, real(boundaries) * 4));
  };
  const auto exchange = [&](Ops& ops) {
    if (at.mesh.ep > 1) {
      Op op = collective_op("all_to_all", Axis::ep, at.mesh.ep, copies_bytes);
      if (at.profile.dispatch_once_per_domain) op.dims[2] = moe.top_k;
      ops.push_back(op);
    }
  };
  const CopyShape copies = {at.tokens(), moe.top_k, most_rows, at.hidden(), at.c};
  const RouterShape router = {at.shard(),      at.sizes.batch, moe.experts, moe.top_k,
                              moe.router_bias, at.c,           pieces};
  const bool shares = moe.shared_experts > 0;

  PartOps part;
  Ops& forward = part.forward;
  forward.push_back(gemm_op({at.shard(), moe.experts, at.hidden()}, at.c, DType::f32, moe.biases));
  forward.push_back(route_forward_op(router));
  const double choices_bytes = real(at.tokens() * moe.top_k) * 4;
  RouterShape placed = router;
  if (at.routes_own_rows()) {  // experts and weights
    for (int i = 0; i < 2; ++i) {
      forward.push_back(collective_op("all_gather", Axis::tp, at.mesh.tp, choices_bytes));
    }
    placed.tokens = at.tokens();
  }
  assign_rows(at, placed, forward);
  at.enter(forward);
  forward.push_back(permute_op(copies, false));
  exchange_counts(forward);
  exchange(forward);
  Ops project = {at.in_format(grouped_gemm_op(groups, {rows, up, at.hidden()}, model_rows, at.c))};
  if (moe.biases) project.push_back(grouped_bias_op(groups, rows, up, at.c));
  if (at.whole) {
    part.recompute = forward;
  } else if (shares && at.repeats(kPartMlp)) {
    at.enter(part.recompute);
  }
  if (at.repeats(kPartMlp)) append(part.recompute, project);
  if (at.repeats(kPartMlp | kPartActivation)) {
    part.recompute.push_back(activation_forward_op(activation));
  }
  Ops back = {at.in_format(grouped_gemm_op(groups, {rows, at.hidden(), width}, model_rows, at.c))};
  if (moe.biases) back.push_back(grouped_bias_op(groups, rows, at.hidden(), at.c));
  exchange(back);
  if (at.whole) append(part.recompute, back);  // the router's gradient needs the experts' outputs
  append(forward, project);
  forward.push_back(activation_forward_op(activation));
  append(forward, back);
  forward.push_back(unpermute_op(copies, true, shares));  // added to the shared experts' output

  Ops& input = part.backward_input;
  at.enter(input);
  input.push_back(permute_op(copies, true));
  exchange(input);
  input.push_back(
      at.in_format(grouped_gemm_op(groups, {rows, width, at.hidden()}, model_rows, at.c)));
  input.push_back(activation_backward_op(activation));
  input.push_back(at.in_format(grouped_gemm_op(groups, {rows, at.hidden(), up}, model_rows, at.c)));
  exchange(input);
  input.push_back(unpermute_op(copies, false, shares));

  Ops& weight = part.backward_weight;
  weight.push_back(
      at.in_format(grouped_gemm_weight_op(groups, {rows, at.hidden(), width}, model_rows, at.c)));
  weight.push_back(
      at.in_format(grouped_gemm_weight_op(groups, {rows, up, at.hidden()}, model_rows, at.c)));
  if (moe.biases) {
    weight.push_back(grouped_column_sum_op(groups, rows, at.hidden(), at.c));
    weight.push_back(grouped_column_sum_op(groups, rows, up, at.c));
  }
  if (shares) {
    at.enter(weight);  // the norm's output again
    const PartOps shared = mlp_part(at, moe.shared_experts * width);
    append(forward, shared.forward);
    append(input, shared.backward_input);
    append(weight, shared.backward_weight);
    append(part.recompute, shared.recompute);
  }
  at.leave(forward);
  at.leave(input);
  if (at.routes_own_rows()) {  // gradients of the weights
    input.push_back(collective_op("reduce_scatter", Axis::tp, at.mesh.tp, choices_bytes));
  }
  // The router's gradient is added on this rank's rows.
  input.push_back(route_backward_op(router));
  input.push_back(
      gemm_op({at.shard(), at.hidden(), moe.experts}, at.c, at.c, false, Accumulate::always));
  weight.push_back(
      gemm_op({moe.experts, at.hidden(), at.shard()}, at.c, DType::f32, false, Accumulate::later));
  if (moe.biases) weight.push_back(column_sum_op(at.shard(), moe.experts, at.c));
  return part;
}

}  // namespace tutti::spec
