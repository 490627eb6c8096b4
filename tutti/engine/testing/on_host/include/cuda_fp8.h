// 8-bit floats of the CUDA backend, on the host (on_host/grid.h).
#pragma once

#include <cstdint>

#include "tutti/base/narrow_float.h"

enum __nv_saturation_t { __NV_NOSAT = 0, __NV_SATFINITE = 1 };
enum __nv_fp8_interpretation_t { __NV_E4M3 = 0, __NV_E5M2 = 1 };

inline uint8_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation,
                                     __nv_fp8_interpretation_t kind) {
  const auto overflow =
      saturation == __NV_SATFINITE ? tutti::Overflow::saturate : tutti::Overflow::special;
  return kind == __NV_E4M3 ? tutti::encode<tutti::kE4m3>(x, overflow)
                           : tutti::encode<tutti::kE5m2>(x, overflow);
}
