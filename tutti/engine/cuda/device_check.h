// Checks of values that only the device sees. Only for .cu files.
#pragma once

#include <cstdio>

namespace tutti::engine {

// Says what is wrong and ends the kernel with a fault, which the next cuda_check() reports.
__device__ inline void device_fail(const char* what, long long a, long long b) {
  printf("tutti: %s: %lld, %lld (block %d %d %d, thread %d)\n", what, a, b, blockIdx.x, blockIdx.y,
         blockIdx.z, threadIdx.x);
  __trap();
}

}  // namespace tutti::engine
