// The largest magnitude of the values that a kernel stores (`amax` of ops.h), computed along with
// the stores: per thread, then per block, whose first thread merges it into the result in memory.
// Most blocks find a larger value there and only read it. The maximum does not depend on the order
// of the blocks. Only for .cu files.
#pragma once

#include <cstdint>

#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/cuda/vectors.h"

namespace tutti::engine {

// Magnitudes are compared as integers: NaN is above infinity, which is above all finite numbers.
__device__ inline unsigned magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffU; }

// most = the maximum of most and the magnitudes of the first `count` elements.
template <int V>
__device__ inline void add_magnitudes(const float (&v)[V], int64_t count, unsigned& most) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (i < count) most = max(most, magnitude_bits(v[i]));
  }
}

struct Larger {
  __device__ static unsigned combine(unsigned a, unsigned b) { return max(a, b); }
};

// Merges `most`, the largest magnitude of the elements T that this thread has stored, before
// rounding, which preserves the order. All threads of a block of complete warps call it, once.
template <typename T>
__device__ inline void store_magnitude(unsigned most, float* amax) {
  __shared__ unsigned of_warps[32];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  most = warp_reduce<Larger>(most);
  if (thread % 32 == 0) of_warps[thread / 32] = most;
  __syncthreads();
  if (thread >= 32) return;
  most = warp_reduce<Larger>(thread < blockDim.x * blockDim.y / 32 ? of_warps[thread] : 0U);
  if (thread != 0) return;
  T rounded;
  narrow(__uint_as_float(most), rounded);
  const unsigned bits = magnitude_bits(widen(rounded));
  auto* to = reinterpret_cast<unsigned*>(amax);
  if (bits > *static_cast<volatile unsigned*>(to)) atomicMax(to, bits);
}

// Call before the kernel: zeroes amax and returns its address, or null if it is not requested.
inline float* begin_magnitude(CudaStream& stream, const Vector& amax) {
  if (!amax) return nullptr;
  stream.zero(amax.data, amax.bytes());
  return amax.as<float>();
}

}  // namespace tutti::engine
