// The arithmetic of activation.cu for one element (formulas in cpu/activation.cpp).
#pragma once

#include <cmath>

#include "tutti/engine/host_device.h"

namespace tutti::engine {

// 1 / (1 + e^-x), 0 where e^-x overflows; NaN stays NaN.
TUTTI_HOST_DEVICE inline float sigmoid(float x) {
#ifdef __CUDA_ARCH__
  return __fdividef(1.0F, 1.0F + expf(-x));  // one instruction; 1 ulp
#else
  return 1.0F / (1.0F + std::exp(-x));
#endif
}

inline constexpr float kGeluLinear = 1.5957691216F;  // 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.07135481283F;  // 2 sqrt(2/pi) * 0.044715

TUTTI_HOST_DEVICE inline float gelu(float x) {
  return x * sigmoid(x * (x * x * kGeluCubic + kGeluLinear));
}

// Derivative of gelu. For |x| >= 10.3 the sigmoid is 0 or 1; x is clamped before its cube
// overflows.
TUTTI_HOST_DEVICE inline float gelu_slope(float x) {
  constexpr float kSaturates = 16.0F;
  x = x < -kSaturates ? -kSaturates : x > kSaturates ? kSaturates : x;  // keeps NaN
  const float square = x * x;
  const float s = sigmoid(x * (square * kGeluCubic + kGeluLinear));
  return x * (s * (1.0F - s)) * (square * (3 * kGeluCubic) + kGeluLinear) + s;
}

}  // namespace tutti::engine
