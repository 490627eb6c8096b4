// The CUDA backend: availability, devices and device memory.
#include "tutti/engine/backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/units.h"
#include "tutti/engine/cuda/check.h"
#include "tutti/engine/cuda/copy_queue.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/device_memory.h"

namespace tutti::engine {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

// Evaluated once: the presence of a GPU does not change while the process runs.
std::string find_missing() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return "";
  cudaGetLastError();
  if (result == cudaErrorInsufficientDriver && driver_version() == 0) {
    return "no GPU: no NVIDIA driver is installed";
  }
  if (result == cudaErrorInsufficientDriver) {
    return fmt::format("no GPU: the driver supports CUDA {}, this build needs {}",
                       version_text(driver_version()), version_text(runtime_version()));
  }
  return fmt::format("no GPU: {}", result == cudaSuccess ? "none is visible (CUDA_VISIBLE_DEVICES)"
                                                         : cudaGetErrorString(result));
}

const std::string& missing() {
  static const std::string why = find_missing();
  return why;
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> out;
  if (!missing().empty()) return out;
  int count = 0;
  cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount", "devices");
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties = {};
    cuda_check(cudaGetDeviceProperties(&properties, i), "cudaGetDeviceProperties", "devices");
    DeviceInfo info;
    info.name = properties.name;
    info.architecture = fmt::format("{}.{}", properties.major, properties.minor);
    info.multiprocessors = properties.multiProcessorCount;
    char pci[32] = {};
    cuda_check(cudaDeviceGetPCIBusId(pci, sizeof(pci), i), "cudaDeviceGetPCIBusId", "devices");
    info.pci = pci;
    info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    info.driver = version_text(driver_version());
    info.runtime = version_text(runtime_version());
    out.push_back(std::move(info));
  }
  return out;
}

void require_device(const std::string& what) {
  if (!missing().empty()) fail(ErrorKind::unsupported, "{}: {}", what, missing());
}

int64_t free_bytes(int device) {
  require_device("device: cuda");
  size_t free = 0;
  size_t total = 0;
  cuda_check(cudaSetDevice(device), "cudaSetDevice", "free memory");
  cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", "free memory");
  return static_cast<int64_t>(free);
}

}  // namespace

const Backend& cuda_backend() {
  static const Backend backend = {
      .name = "cuda",
      .ops = cuda_ops,
      .missing = [] { return missing(); },
      .devices = list_devices,
      .free_bytes = free_bytes,
      .make_stream = [](const StreamOptions& options) -> std::unique_ptr<Stream> {
        require_device("device: cuda");
        return std::make_unique<CudaStream>(options);
      },
      .make_copy_queue = [](Stream& stream) -> std::unique_ptr<CopyQueue> {
        return std::make_unique<CudaCopyQueue>(cuda_stream(stream));
      },
  };
  return backend;
}

void* allocate_device_memory(const std::string& name, int64_t bytes, ArenaKind kind) {
  require_device(fmt::format("arena {}", name));
  void* data = nullptr;
  if (kind == ArenaKind::pinned) {
    const cudaError_t result = cudaHostAlloc(&data, static_cast<size_t>(bytes),
                                             cudaHostAllocPortable | cudaHostAllocMapped);
    if (result != cudaSuccess) {
      cudaGetLastError();
      fail(ErrorKind::unsupported, "arena {}: cannot allocate {} of pinned memory ({})", name,
           format_bytes(static_cast<double>(bytes)), cudaGetErrorString(result));
    }
    void* on_device = nullptr;
    cuda_check(cudaHostGetDevicePointer(&on_device, data, 0), "cudaHostGetDevicePointer",
               "pinned memory");
    TUTTI_CHECK(on_device == data, "arena {}: pinned memory has a different device address", name);
    std::fill_n(static_cast<char*>(data), bytes, char{0});
    return data;
  }
  const cudaError_t result = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (result != cudaSuccess) {
    cudaGetLastError();
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    fail(ErrorKind::unsupported,
         "arena {}: cannot allocate {} of device memory, {} of {} are free ({}); choose recompute, "
         "a smaller micro-batch or ZeRO",
         name, format_bytes(static_cast<double>(bytes)), format_bytes(static_cast<double>(free)),
         format_bytes(static_cast<double>(total)), cudaGetErrorString(result));
  }
  fill_device_memory(data, 0, bytes);
  return data;
}

void free_device_memory(void* data, ArenaKind kind) {
  // cudaFree waits for work that uses the memory. At process exit the driver may be unloaded.
  const cudaError_t result = kind == ArenaKind::pinned ? cudaFreeHost(data) : cudaFree(data);
  if (result != cudaErrorCudartUnloading) cuda_check(result, "cudaFree", "arena");
}

void fill_device_memory(void* data, int byte, int64_t bytes) {
  cuda_check(cudaMemset(data, byte, static_cast<size_t>(bytes)), "cudaMemset", "arena");
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", "arena");
}

}  // namespace tutti::engine
