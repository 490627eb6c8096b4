// Launches a kernel on a CudaStream. Only for .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tutti/engine/cuda/check.h"
#include "tutti/engine/cuda/record.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {

// Blocks of `size` that cover `count` (0 for none).
inline unsigned blocks_for(int64_t count, int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

// Enqueues kernel<<<grid, block, shared_bytes>>>(arguments...), with arguments converted to the
// kernel's parameter types. An empty grid launches nothing. Opts in to more than 48 KiB of shared
// memory if needed. A launch that fails aborts and names `op`.
template <typename... Parameters, typename... Arguments>
void launch(CudaStream& stream, const char* op, void (*kernel)(Parameters...), dim3 grid,
            dim3 block, size_t shared_bytes, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr size_t kDefaultLimit = 48 << 10;
  if (shared_bytes > kDefaultLimit) {
    cuda_check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "cudaFuncSetAttribute(shared memory)", op);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.handle();
  cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
             "cudaLaunchKernelEx", op);
}

// The dynamic shared memory of a kernel, as requested at its launch.
template <typename T>
__device__ inline T* dynamic_shared() {
#ifdef TUTTI_CUDA_ON_HOST
  return static_cast<T*>(on_host::dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char dynamic_memory[];
  return reinterpret_cast<T*>(dynamic_memory);
#endif
}

}  // namespace tutti::engine
