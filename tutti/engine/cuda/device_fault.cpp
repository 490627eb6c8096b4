#include "tutti/engine/cuda/device_fault.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "tutti/engine/cuda/check.h"

namespace tutti::engine {
namespace {

// Filled before main() by the source files of kernels.
std::vector<const void*>& variables() {
  static std::vector<const void*> out;
  return out;
}

DeviceFault* report = nullptr;

}  // namespace

DeviceFaultUser::DeviceFaultUser(DeviceFault* const& variable) { variables().push_back(&variable); }

void prepare_device_faults() {
  static std::mutex mutex;
  static std::set<int> prepared;
  int device = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice", "device checks");
  const std::lock_guard lock(mutex);
  if (!prepared.insert(device).second) return;
  if (report == nullptr) {
    void* memory = nullptr;  // never freed
    cuda_check(
        cudaHostAlloc(&memory, sizeof(DeviceFault), cudaHostAllocPortable | cudaHostAllocMapped),
        "cudaHostAlloc", "device checks");
    report = new (memory) DeviceFault;
  }
  for (const void* variable : variables()) {
    cuda_check(cudaMemcpyToSymbol(variable, &report, sizeof report), "cudaMemcpyToSymbol",
               "device checks");
  }
}

std::string device_fault_text() {
  if (report == nullptr || report->is_written == 0) return "";
  const DeviceFault& fault = *report;
  return fmt::format("{}: {}, {} (block {} {} {}, thread {})", fault.what, fault.a, fault.b,
                     fault.block[0], fault.block[1], fault.block[2], fault.thread);
}

}  // namespace tutti::engine
