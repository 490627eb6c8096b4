// Checks of values that only the device sees. Only for .cu files.
//
// A kernel that finds a wrong one writes what it is to pinned memory, which the host can read when
// the device is lost, and ends with a fault. cuda_check() and library_check() say both. What a
// kernel prints would be lost with it.
#pragma once

#include <cuda_runtime.h>

#include "tutti/engine/cuda/device_fault.h"

namespace tutti::engine {

// Of each source of kernels. The host fills in the first one for each device (device_fault.h).
static __device__ DeviceFault* device_fault_place = nullptr;
static __device__ int device_fault_taken = 0;

namespace {
[[maybe_unused]] const DeviceFaultUser kDeviceFaultUser(device_fault_place);
}

// The first thread that gets here tells; the others stay until its fault ends them all.
__device__ inline void device_fail(const char* what, long long a, long long b) {
  if (atomicCAS(&device_fault_taken, 0, 1) != 0) {
    for (;;) __nanosleep(1000);
  }
  if (DeviceFault* const fault = device_fault_place; fault != nullptr) {
    int at = 0;
    for (; at + 1 < DeviceFault::kText && what[at] != '\0'; ++at) fault->what[at] = what[at];
    fault->what[at] = '\0';
    fault->a = a;
    fault->b = b;
    fault->block[0] = blockIdx.x;
    fault->block[1] = blockIdx.y;
    fault->block[2] = blockIdx.z;
    fault->thread = threadIdx.x;
    __threadfence_system();
    fault->is_told = 1;
    __threadfence_system();
  }
  __trap();
}

}  // namespace tutti::engine
