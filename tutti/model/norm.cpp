#include "tutti/model/norm.h"

namespace tutti::model {

NormLayer make_norm(const spec::ModelConfig& config, const NormWeights& weights) {
  return {config.norm == spec::Norm::layer ? engine::NormKind::layer : engine::NormKind::rms,
          static_cast<float>(config.norm_epsilon), weights};
}

void norm_forward(engine::Stream& stream, const NormLayer& layer, engine::Matrix previous,
                  engine::Matrix branch, const NormSaved& saved) {
  engine::NormForwardArgs args;
  args.kind = layer.kind;
  args.residual_in = branch ? previous : saved.residual;
  args.branch = branch;
  if (branch) args.residual_out = saved.residual;
  args.weight = layer.weights.weight;
  args.bias = layer.weights.bias;
  args.epsilon = layer.epsilon;
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
  engine::NormBackwardInputArgs args = {.kind = layer.kind,
                                        .dy = dy,
                                        .residual = saved.residual,
                                        .weight = layer.weights.weight,
                                        .mean = saved.mean,
                                        .rstd = saved.rstd,
                                        .accumulate = accumulate,
                                        .d_residual = d_residual,
                                        .d_branch = d_branch};
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

}  // namespace tutti::model
