#include "tutti/model/mlp.h"

namespace tutti::model {

void mlp_forward(engine::Stream& stream, const MlpLayer& layer, engine::Matrix x,
                 const MlpSaved& saved, engine::Matrix branch, const AdapterPass& pass,
                 MlpSteps steps) {
  if (steps.up) linear_forward_no_bias(stream, layer.up, x, saved.pre, pass, saved.x_amax);
  if (steps.activation) {
    stream.ops().activation_forward(stream, {.kind = layer.activation,
                                             .x = saved.pre,
                                             .bias = layer.up.bias,
                                             .y = saved.act,
                                             .amax = saved.act_amax.value});
  }
  if (steps.down) linear_forward(stream, layer.down, saved.act, branch, pass, saved.act_amax);
}

void mlp_backward_input(engine::Stream& stream, const MlpLayer& layer, const MlpSaved& saved,
                        engine::Matrix d_branch, const MlpWork& work, engine::Matrix dx,
                        const AdapterPass& pass, const engine::Magnitude& d_branch_amax) {
  linear_backward_input(stream, layer.down, d_branch, work.d_act, pass, d_branch_amax);
  if (!work.d_act) return;
  stream.ops().activation_backward(stream, {.kind = layer.activation,
                                            .x = saved.pre,
                                            .bias = layer.up.bias,
                                            .dy = work.d_act,
                                            .dx = work.d_pre,
                                            .amax = work.d_pre_amax});
  linear_backward_input(stream, layer.up, work.d_pre, dx, pass,
                        engine::known_magnitude(work.d_pre_amax));
}

void mlp_backward_weight(engine::Stream& stream, const MlpLayer& layer, engine::Matrix x,
                         const MlpSaved& saved, engine::Matrix d_branch, const MlpWork& work,
                         float beta, const AdapterPass& pass) {
  linear_backward_weight(stream, layer.down, saved.act, d_branch, beta, pass, saved.act_amax);
  if (!work.d_pre) return;
  linear_backward_weight(stream, layer.up, x, work.d_pre, beta, pass, saved.x_amax);
}

}  // namespace tutti::model
