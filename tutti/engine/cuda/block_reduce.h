// Sums and maxima over the threads of a warp or block, in a fixed order: every thread gets the same
// bits. Blocks are one-dimensional and consist of complete warps. Only for .cu files.
#pragma once

#include <cstdint>

namespace tutti::engine {

inline constexpr unsigned kAllLanes = 0xffffffffU;

struct Sum {
  template <typename T>
  __device__ static T combine(T a, T b) {
    return a + b;
  }
};
struct Max {  // of floats: ignores NaN
  __device__ static float combine(float a, float b) { return fmaxf(a, b); }
};

template <typename How, typename T>
__device__ inline T warp_reduce(T x) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    x = How::combine(x, __shfl_xor_sync(kAllLanes, x, apart));
  }
  return x;
}

// `identity`: the value of missing warps. All threads of the block call it. Orders memory like
// __syncthreads() if the block has several warps.
template <typename How, typename T>
__device__ inline T block_reduce(T x, T identity) {
  __shared__ T parts[32];
  x = warp_reduce<How>(x);
  const unsigned warps = blockDim.x / 32;
  if (warps == 1) return x;
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  __syncthreads();  // the previous call may still read parts
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  return warp_reduce<How>(lane < warps ? parts[lane] : identity);
}
template <typename T>
__device__ inline T block_sum(T x) {
  return block_reduce<Sum>(x, T(0));
}
__device__ inline float block_max(float x, float lowest) { return block_reduce<Max>(x, lowest); }

}  // namespace tutti::engine
