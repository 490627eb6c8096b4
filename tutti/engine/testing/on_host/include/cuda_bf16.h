// 16-bit floats of the CUDA backend, on the host (on_host/grid.h).
#pragma once

#include <cstdint>

#include "tutti/engine/tensor.h"

struct __nv_bfloat16 {
  uint16_t bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {tutti::to_bf16(x).bits}; }
inline float __bfloat162float(__nv_bfloat16 x) { return tutti::to_f32(tutti::bf16{x.bits}); }
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
