// The language extensions that kernels of the CUDA backend use, on the host (on_host/grid.h):
// qualifiers, indices, barriers, exchanges between lanes, intrinsics, launches. As with NVIDIA's
// compiler it is included before the first line of a .cu file.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "tutti/base/check.h"
#include "tutti/engine/testing/on_host/grid.h"
#include "tutti/engine/testing/on_host/queue.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
// Blocks run one after the other on their host thread.
#define __shared__ static thread_local

struct uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
struct dim3 : tutti::engine::on_host::Extent {
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : Extent{x_, y_, z_} {}
};
struct uint3 {
  unsigned x, y, z;
};
extern constinit thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;

// ---- Barriers and exchanges ---------------------------------------------------------------------

inline void __syncthreads() { tutti::engine::on_host::wait_for_block(); }
// Only complete warps are supported.
inline constexpr unsigned kAllLanesOnHost = 0xffffffffU;
inline void check_whole_warp(unsigned mask) {
  TUTTI_CHECK(mask == kAllLanesOnHost, "exchange with lane mask {:#x}, expected all lanes", mask);
}
inline void __syncwarp(unsigned mask = kAllLanesOnHost) {
  check_whole_warp(mask);
  tutti::engine::on_host::exchange(0, 0);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  check_whole_warp(mask);
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  word = tutti::engine::on_host::exchange(word, static_cast<unsigned>(from) % 32);
  std::memcpy(&value, &word, sizeof(T));
  return value;
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, static_cast<int>(tutti::engine::on_host::lane()) ^ lanes);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes) {
  const unsigned here = tutti::engine::on_host::lane();
  return __shfl_sync(mask, value, static_cast<int>(here < lanes ? here : here - lanes));
}
inline unsigned __ballot_sync(unsigned mask, int value) {
  check_whole_warp(mask);
  return tutti::engine::on_host::ballot(value != 0);
}

// ---- Intrinsics ---------------------------------------------------------------------------------

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) {
  return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}
using std::isfinite;
using std::isinf;
using std::isnan;
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline void __trap() { tutti::engine::on_host::trap(); }
inline void __nanosleep(unsigned) {}
inline void __threadfence_system() {}
inline long long clock64() {  // emulates a clock of 1 GHz
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}
template <typename A, typename B>
constexpr auto min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
constexpr auto max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <typename T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}
template <typename T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = max(before, value);
  return before;
}

// ---- Launches -----------------------------------------------------------------------------------

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

namespace tutti::engine::on_host {
// Returns the error that a GPU would report for this launch.
cudaError_t check_launch(const void* kernel, const cudaLaunchConfig_t& config);
}  // namespace tutti::engine::on_host

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  namespace on_host = tutti::engine::on_host;
  const cudaError_t error = on_host::check_launch(reinterpret_cast<const void*>(kernel), *config);
  if (error != cudaSuccess) return error;
  on_host::enqueue(
      config->stream,
      [grid = config->gridDim, block = config->blockDim, shared = config->dynamicSmemBytes, kernel,
       values = std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)] {
        on_host::run_grid(grid, block, shared, [&] { std::apply(kernel, values); });
      });
  return cudaSuccess;
}
