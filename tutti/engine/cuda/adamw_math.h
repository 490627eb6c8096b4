// The arithmetic of adamw.cu for one parameter (formula in update_ops.h).
#pragma once

#include <cmath>

#include "tutti/engine/host_device.h"

namespace tutti::engine {

// Constants of all parameters of a segment.
struct AdamwFactors {
  float clip, beta1, rest1, beta2, rest2, epsilon;
  float step_size;     // learning_rate / bias1
  float inverse_root;  // 1 / sqrt(bias2)
};

struct AdamwElement {
  float p, m, v;
};

// decay: learning_rate * weight_decay.
TUTTI_HOST_DEVICE inline AdamwElement adamw_step(AdamwElement e, float gradient, float decay,
                                                 const AdamwFactors& f) {
  const float g = gradient * f.clip;
  e.m = fmaf(f.beta1, e.m, f.rest1 * g);
  e.v = fmaf(f.beta2, e.v, f.rest2 * (g * g));
  const float root = fmaf(sqrtf(e.v), f.inverse_root, f.epsilon);
  e.p -= fmaf(f.step_size, e.m / root, decay * e.p);
  return e;
}

}  // namespace tutti::engine
