#include "tutti/model/moe.h"

namespace tutti::model {

void moe_forward(engine::Stream& stream, const MoeLayer& layer, BatchShape shape, engine::Matrix x,
                 const MoeSaved& saved, engine::Matrix branch, const MoeSteps& steps) {
  const engine::OpTable& ops = stream.ops();
  if (steps.route) {
    // The logits become probabilities in place.
    linear_forward(stream, layer.router, x, saved.probabilities);
    ops.route_forward(stream, {.logits = saved.probabilities,
                               .bias = layer.selection_bias,
                               .probabilities = saved.probabilities,
                               .lse = saved.lse,
                               .experts = saved.experts,
                               .weights = saved.weights});
    ops.assign_rows(stream, {.experts = saved.experts,
                             .sequence = shape.tokens,
                             .capacity = spec::expert_capacity(layer.config, shape.tokens),
                             .rows = saved.input.rows,
                             .counts = saved.counts,
                             .offsets = saved.offsets,
                             .positions = saved.positions});
    ops.permute(stream, {.x = x, .positions = saved.positions, .out = saved.input});
  }
  if (steps.up) {
    ops.grouped_gemm(stream, {.a = saved.input,
                              .b = layer.up.weight,
                              .offsets = saved.offsets,
                              .transpose_b = true,
                              .c = saved.pre});
  }
  if (steps.activation) {
    ops.activation_forward(stream, {.kind = layer.activation, .x = saved.pre, .y = saved.act});
  }
  if (steps.down) {
    ops.grouped_gemm(stream, {.a = saved.act,
                              .b = layer.down.weight,
                              .offsets = saved.offsets,
                              .transpose_b = true,
                              .c = saved.output});
  }
  const bool shares = layer.config.shared_experts > 0;
  if (shares) mlp_forward(stream, layer.shared, x, saved.shared, branch, {}, steps.shared);
  if (steps.combine) {
    ops.unpermute(stream, {.rows = saved.output,
                           .positions = saved.positions,
                           .weights = saved.weights,
                           .accumulate = shares,
                           .out = branch});
  }
}

void moe_backward_input(engine::Stream& stream, const MoeLayer& layer, BatchShape shape,
                        const RoutingStep& step, const MoeSaved& saved, engine::Matrix d_branch,
                        const MoeWork& work, engine::Matrix dx) {
  const engine::OpTable& ops = stream.ops();
  ops.permute(stream, {.x = d_branch,
                       .positions = saved.positions,
                       .weights = saved.weights,
                       .out = work.d_output,
                       .partner = saved.output,
                       .dots = work.d_weights});
  ops.route_backward(stream, {.probabilities = saved.probabilities,
                              .lse = saved.lse,
                              .experts = saved.experts,
                              .weights = saved.weights,
                              .d_weights = work.d_weights,
                              .counts = saved.counts,
                              .offsets = saved.offsets,
                              .balance_scale = layer.balance_loss * step.row_scale *
                                               static_cast<float>(shape.tokens),
                              .z_scale = layer.z_loss * step.row_scale,
                              .d_logits = work.d_logits,
                              .beta = step.first ? 0.0F : 1.0F,
                              .load = work.load,
                              .sums = work.sums});
  ops.grouped_gemm(
      stream,
      {.a = work.d_output, .b = layer.down.weight, .offsets = saved.offsets, .c = work.d_act});
  ops.activation_backward(
      stream, {.kind = layer.activation, .x = saved.pre, .dy = work.d_act, .dx = work.d_pre});
  ops.grouped_gemm(
      stream, {.a = work.d_pre, .b = layer.up.weight, .offsets = saved.offsets, .c = work.d_input});
  const bool shares = layer.config.shared_experts > 0;
  if (shares) mlp_backward_input(stream, layer.shared, saved.shared, d_branch, work.shared, dx);
  ops.unpermute(
      stream,
      {.rows = work.d_input, .positions = saved.positions, .accumulate = shares, .out = dx});
  ops.gemm(stream, {.a = work.d_logits, .b = layer.router.weight, .c = dx, .beta = 1});
}

void moe_backward_weight(engine::Stream& stream, const MoeLayer& layer, engine::Matrix x,
                         const MoeSaved& saved, engine::Matrix d_branch, const MoeWork& work,
                         float beta) {
  const engine::OpTable& ops = stream.ops();
  ops.grouped_gemm_weight(stream, {.dy = work.d_output,
                                   .x = saved.act,
                                   .offsets = saved.offsets,
                                   .beta = beta,
                                   .d_weight = layer.down.d_weight});
  ops.grouped_gemm_weight(stream, {.dy = work.d_pre,
                                   .x = saved.input,
                                   .offsets = saved.offsets,
                                   .beta = beta,
                                   .d_weight = layer.up.d_weight});
  if (layer.config.shared_experts > 0) {
    mlp_backward_weight(stream, layer.shared, x, saved.shared, d_branch, work.shared, beta);
  }
  linear_backward_weight(stream, layer.router, x, work.d_logits, beta);
}

}  // namespace tutti::model
