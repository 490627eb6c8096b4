// LayerNorm or RMSNorm of the f32 residual stream, fused with the addition of the preceding branch.
// Shapes: [N, H].
#pragma once

#include <optional>

#include "tutti/engine/stream.h"
#include "tutti/model/parameters.h"
#include "tutti/spec/model/config.h"

namespace tutti::model {

struct NormLayer {
  engine::NormKind kind = engine::NormKind::layer;
  float epsilon = 1e-5F;
  float offset = 0;     // added to the weights
  NormWeights weights;  // without a weight there is no norm: y is the residual in c (a block whose
                        // norms are after attention and MLP)
};

NormLayer make_norm(const spec::ModelConfig& config, const NormWeights& weights);

// Saved for the backward pass: the norm's input, its statistics, and the output.
struct NormSaved {
  engine::Matrix residual;  // [N, H] f32
  engine::Vector mean;      // [N] f32, layer norm only
  engine::Vector rstd;      // [N] f32
  engine::Matrix y;         // [N, H] c
  engine::Vector amax;      // [1] f32 of y, for products below 16 bits; may be empty
};

// saved.y = norm(residual), where residual = previous + branch is stored in saved.residual; without
// a branch saved.residual already holds the input.
void norm_forward(engine::Stream& stream, const NormLayer& layer, engine::Matrix previous,
                  engine::Matrix branch, const NormSaved& saved);

// d_residual (+)= gradient through the norm; d_branch, if given, receives the sum in c, and amax
// its largest magnitude. With weight_beta also norm_backward_weight, in the same pass if the
// backend supports it.
void norm_backward_input(engine::Stream& stream, const NormLayer& layer, const NormSaved& saved,
                         engine::Matrix dy, bool accumulate, engine::Matrix d_residual,
                         engine::Matrix d_branch, std::optional<float> weight_beta = {},
                         engine::Vector amax = {});

void norm_backward_weight(engine::Stream& stream, const NormLayer& layer, const NormSaved& saved,
                          engine::Matrix dy, float beta);

// RMSNorm of a branch before it is added, in c, in place. x [n, H] c keeps the norm's input.
struct BranchNormSaved {
  engine::Matrix x;     // [n, H] c
  engine::Vector rstd;  // [n] f32
};
void branch_norm_forward(engine::Stream& stream, const NormLayer& layer, engine::Matrix branch,
                         const BranchNormSaved& saved);
// d_branch in place, and the gradient of the weights.
void branch_norm_backward(engine::Stream& stream, const NormLayer& layer, engine::Matrix d_branch,
                          const BranchNormSaved& saved, float beta);

}  // namespace tutti::model
