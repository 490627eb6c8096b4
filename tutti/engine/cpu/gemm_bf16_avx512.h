// The instruction set that the sources of gemm_bf16 are compiled for.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 reports the deliberately undefined pass-through operand inside its own AVX-512 intrinsics
// as an uninitialized variable (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstdint>

#define TUTTI_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))
#define TUTTI_AVX512_INLINE TUTTI_AVX512 __attribute__((always_inline)) inline

namespace tutti::engine {

inline constexpr int kLanes = 16;  // f32 lanes of a register

// Mask of the first `count` of `width` lanes.
constexpr uint32_t low_bits(int64_t count, int width) {
  if (count <= 0) return 0;
  return count >= width ? static_cast<uint32_t>((uint64_t{1} << width) - 1)
                        : (uint32_t{1} << count) - 1;
}

}  // namespace tutti::engine
