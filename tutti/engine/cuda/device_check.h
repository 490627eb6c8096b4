// Checks of values that exist only on the device. Only for .cu files.
//
// A kernel that finds an invalid value writes a report to pinned memory, which the host can read
// even after the device is lost, and traps. cuda_check() and library_check() print the report. The
// output of printf in a kernel would be lost.
#pragma once

#include <cuda_runtime.h>

#include "tutti/engine/cuda/device_fault.h"

namespace tutti::engine {

// One pair per source file of kernels. The host sets the pointer on each device (device_fault.h).
static __device__ DeviceFault* device_fault_report = nullptr;
static __device__ int device_fault_taken = 0;

namespace {
[[maybe_unused]] const DeviceFaultUser kDeviceFaultUser(device_fault_report);
}

// The first thread that gets here writes the report; others spin until its trap ends them all.
__device__ inline void device_fail(const char* what, long long a, long long b) {
  if (atomicCAS(&device_fault_taken, 0, 1) != 0) {
    for (;;) __nanosleep(1000);
  }
  if (DeviceFault* const fault = device_fault_report; fault != nullptr) {
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
    fault->is_written = 1;
    __threadfence_system();
  }
  __trap();
}

}  // namespace tutti::engine
