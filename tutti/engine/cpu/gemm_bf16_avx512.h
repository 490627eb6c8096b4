// What the sources of gemm_bf16 share: the instruction set that they are compiled for.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the deliberately undefined pass-through operand inside its own AVX-512 intrinsics
// for a use of an uninitialized variable (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstdint>

#define TUTTI_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))
#define TUTTI_AVX512_INLINE TUTTI_AVX512 __attribute__((always_inline)) inline

namespace tutti::engine {

inline constexpr int kLanes = 16;  // f32 of a register

// The first `count` bits of `width`: a mask of lanes.
constexpr uint32_t low_bits(int64_t count, int width) {
  if (count <= 0) return 0;
  return count >= width ? static_cast<uint32_t>((uint64_t{1} << width) - 1)
                        : (uint32_t{1} << count) - 1;
}

}  // namespace tutti::engine
