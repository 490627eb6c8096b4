// Feed-forward network: gelu (up, gelu, down) or swiglu (gate_up, silu(gate) * up, down). The
// activation adds the bias of the first projection.
#pragma once

#include "tutti/engine/stream.h"
#include "tutti/model/linear.h"

namespace tutti::model {

struct MlpLayer {
  engine::Activation activation = engine::Activation::gelu;
  Linear up;    // [H] -> [F], or gate | up [2F] for swiglu
  Linear down;  // [F] -> [H]
};

struct MlpSaved {
  engine::Matrix pre;  // [N, F] or [N, 2F] c, before bias and activation
  engine::Matrix act;  // [N, F] c
  // Largest magnitudes (amax) for products below 16 bits, where they are stored.
  engine::Magnitude x_amax = {};
  engine::Magnitude act_amax = {};
};

struct MlpWork {
  engine::Matrix d_act;            // [N, F] c
  engine::Matrix d_pre;            // [N, F] or [N, 2F] c; for gelu the same memory as d_act
  engine::Vector d_pre_amax = {};  // [1] f32, like those of MlpSaved
};

// Steps of a forward pass to compute; the results of the others are already in `saved`.
struct MlpSteps {
  bool up = true;
  bool activation = true;
  bool down = true;
};

// branch [N, H] c = mlp(x [N, H] c)
void mlp_forward(engine::Stream& stream, const MlpLayer& layer, engine::Matrix x,
                 const MlpSaved& saved, engine::Matrix branch, const AdapterPass& pass = {},
                 MlpSteps steps = {});

// Gradients that are not needed are empty: dx, or everything from work.d_act on.
void mlp_backward_input(engine::Stream& stream, const MlpLayer& layer, const MlpSaved& saved,
                        engine::Matrix d_branch, const MlpWork& work, engine::Matrix dx,
                        const AdapterPass& pass = {}, const engine::Magnitude& d_branch_amax = {});

void mlp_backward_weight(engine::Stream& stream, const MlpLayer& layer, engine::Matrix x,
                         const MlpSaved& saved, engine::Matrix d_branch, const MlpWork& work,
                         float beta, const AdapterPass& pass = {});

}  // namespace tutti::model
