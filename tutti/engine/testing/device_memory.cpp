#include "tutti/engine/testing/device_memory.h"

#include <cuda_runtime_api.h>

#include "tutti/engine/cuda/check.h"

namespace tutti::engine::testing {

// Managed memory: a page migrates to the device when a kernel first touches it, and back when the
// host does, which tests do when their stream is idle.
void* allocate_test_memory(size_t bytes) {
  void* data = nullptr;
  cuda_check(cudaMallocManaged(&data, bytes), "cudaMallocManaged", "operands of a test");
  return data;
}

void free_test_memory(void* data) {
  const cudaError_t result = cudaFree(data);
  if (result != cudaErrorCudartUnloading) cuda_check(result, "cudaFree", "operands of a test");
}

}  // namespace tutti::engine::testing
