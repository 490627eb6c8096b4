#include "tutti/model/norm.h"

#include "tutti/base/check.h"

namespace tutti::model {

NormLayer make_norm(const spec::ModelConfig& config, const NormWeights& weights) {
  return {config.norm == spec::Norm::layer ? engine::NormKind::layer : engine::NormKind::rms,
          static_cast<float>(config.norm_epsilon), static_cast<float>(config.norm_offset), weights};
}

void norm_forward(engine::Stream& stream, const NormLayer& layer, engine::Matrix previous,
                  engine::Matrix branch, const NormSaved& saved) {
  if (!layer.weights.weight) {
    if (branch) {
      stream.ops().copy(stream, {.x = previous, .plus = branch, .out = saved.residual});
    }
    stream.ops().copy(stream, {.x = saved.residual, .out = saved.y});
    return;
  }
  engine::NormForwardArgs args;
  args.kind = layer.kind;
  args.residual_in = branch ? previous : saved.residual;
  args.branch = branch;
  if (branch) args.residual_out = saved.residual;
  args.weight = layer.weights.weight;
  args.bias = layer.weights.bias;
  args.epsilon = layer.epsilon;
  args.offset = layer.offset;
  args.y = saved.y;
  args.mean = saved.mean;
  args.rstd = saved.rstd;
  args.amax = saved.amax;
  stream.ops().norm_forward(stream, args);
}

void norm_backward_input(engine::Stream& stream, const NormLayer& layer, const NormSaved& saved,
                         engine::Matrix dy, bool accumulate, engine::Matrix d_residual,
                         engine::Matrix d_branch, std::optional<float> weight_beta,
                         engine::Vector amax) {
  if (!layer.weights.weight) {
    TUTTI_CHECK(accumulate, "the gradient of a residual without a norm");
    stream.ops().copy(stream, {.x = d_residual, .plus = dy, .out = d_residual});
    if (d_branch) stream.ops().copy(stream, {.x = d_residual, .out = d_branch});
    return;
  }
  engine::NormBackwardInputArgs args = {.kind = layer.kind,
                                        .dy = dy,
                                        .residual = saved.residual,
                                        .weight = layer.weights.weight,
                                        .mean = saved.mean,
                                        .rstd = saved.rstd,
                                        .accumulate = accumulate,
                                        .d_residual = d_residual,
                                        .d_branch = d_branch,
                                        .offset = layer.offset};
  if (d_branch) args.amax = amax;
  if (weight_beta && layer.weights.d_weight) {
    args.beta = *weight_beta;
    args.d_weight = layer.weights.d_weight;
    args.d_bias = layer.weights.d_bias;
  }
  stream.ops().norm_backward_input(stream, args);
}

void norm_backward_weight(engine::Stream& stream, const NormLayer& layer, const NormSaved& saved,
                          engine::Matrix dy, float beta) {
  if (!layer.weights.d_weight) return;  // frozen
  stream.ops().norm_backward_weight(stream, {.kind = layer.kind,
                                             .dy = dy,
                                             .residual = saved.residual,
                                             .mean = saved.mean,
                                             .rstd = saved.rstd,
                                             .beta = beta,
                                             .d_weight = layer.weights.d_weight,
                                             .d_bias = layer.weights.d_bias});
}

namespace {

engine::Matrix as_column(const engine::Vector& v) {
  return engine::matrix(v.data, v.dtype, v.count, 1);
}

}  // namespace

void branch_norm_forward(engine::Stream& stream, const NormLayer& layer, engine::Matrix branch,
                         const BranchNormSaved& saved) {
  stream.ops().copy(stream, {.x = branch, .out = saved.x});
  stream.ops().rms_norm_forward(stream, {.x = saved.x,
                                         .weight = layer.weights.weight,
                                         .offset = layer.offset,
                                         .epsilon = layer.epsilon,
                                         .y = branch,
                                         .rstd = as_column(saved.rstd)});
}

void branch_norm_backward(engine::Stream& stream, const NormLayer& layer, engine::Matrix d_branch,
                          const BranchNormSaved& saved, float beta) {
  stream.ops().rms_norm_backward(stream, {.dy = d_branch,
                                          .x = saved.x,
                                          .weight = layer.weights.weight,
                                          .offset = layer.offset,
                                          .rstd = as_column(saved.rstd),
                                          .dx = d_branch,
                                          .beta = beta,
                                          .d_weight = layer.weights.d_weight});
}

}  // namespace tutti::model
