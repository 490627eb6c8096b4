// Normalisation and soft-capping within the compute type, of queries and keys, of branches and of
// logits: part of the table in ops.h, whose rules and shape letters apply here. CPU only.
#pragma once

#include <cstdint>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

// RMSNorm (Zhang and Sennrich 2019) of each of G column groups of x, of width W:
//   y = x * rstd * (offset + weight), rstd = 1 / sqrt(mean(x^2) + epsilon).
// G heads of a row share the weights (Qwen3), or G = 1 (a branch; queries of OLMo 2). y may be x.
// record "rms_norm_forward": dims (N, G, W); bytes of all operands.
struct RmsNormForwardArgs {
  Matrix x;  // [N, G*W] c
  int64_t groups = 1;
  Vector weight;  // [W] c
  float offset = 0;
  float epsilon = 1e-6F;
  Matrix y;          // [N, G*W] c
  Matrix rstd = {};  // [N, G] f32; may be empty if there is no backward pass
};

// With x_hat = x * rstd and g = dy * (offset + weight): dx = rstd * (g - x_hat * mean(g * x_hat)),
// which may be dy in place; d_weight, if given, = beta * d_weight + sum over rows and groups of dy
// * x_hat. record "rms_norm_backward": dims (N, G, W); bytes of all operands, d_weight twice (beta
// 0: once).
struct RmsNormBackwardArgs {
  Matrix dy;  // [N, G*W] c
  Matrix x;   // [N, G*W] c
  int64_t groups = 1;
  Vector weight;  // [W] c
  float offset = 0;
  Matrix rstd;  // [N, G] f32
  Matrix dx;    // [N, G*W] c
  float beta = 1;
  Vector d_weight = {};  // [W] f32, optional
};

// x = cap * tanh(x / cap) in place (logits of Gemma 2).
// record "softcap": dims (N, M); bytes of x read and written.
struct SoftcapArgs {
  Matrix x;       // [N, M] f32 or bf16
  float cap = 0;  // above 0
};

}  // namespace tutti::engine
