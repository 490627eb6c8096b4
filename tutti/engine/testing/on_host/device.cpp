// The devices of the CUDA runtime on the host: their properties, memory and launches. Their number
// is TUTTI_HOST_DEVICES, 1 by default.
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/engine/testing/on_host/device_memory_guard.h"
#include "tutti/engine/testing/on_host/queue.h"

namespace {

constexpr size_t kDeviceBytes = size_t{16} << 30;  // of address space; pages are lazily allocated
constexpr size_t kGrain = 4096;
constexpr unsigned char kUndefined = 0xff;  // NaN
constexpr size_t kMostUndefined = size_t{1}
                                  << 20;  // bytes of a block to fill: touching pages is slow
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostRows = 65535;                // of a grid in y and z
constexpr size_t kMostShared = size_t{227} << 10;    // of a block, compute capability 9.0
constexpr size_t kDefaultShared = size_t{48} << 10;  // more needs cudaFuncSetAttribute
thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_here = 0;

cudaError_t set_last(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

struct Block {
  size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  int device = 0;  // current at the allocation
};

std::mutex all;  // guards everything here
std::map<char*, Block> blocks;
std::map<const void*, int> shared_limits;  // bytes, by kernel
int accesses = 0;

int device_count() {
  static const int count = [] {
    const char* const text = std::getenv("TUTTI_HOST_DEVICES");
    return text == nullptr ? 1 : std::max(1, std::atoi(text));
  }();
  return count;
}

// The memory that a device reports: TUTTI_HOST_DEVICE_BYTES lists one number per device.
size_t reported_bytes(int device) {
  const char* text = std::getenv("TUTTI_HOST_DEVICE_BYTES");
  for (int i = 0; text != nullptr && *text != '\0'; ++i) {
    char* end = nullptr;
    const size_t bytes = std::strtoull(text, &end, 10);
    if (i == device) return bytes;
    text = *end == ',' ? end + 1 : nullptr;
  }
  return kDeviceBytes;
}

cudaError_t check_device(int device) {
  return device >= 0 && device < device_count() ? cudaSuccess : cudaErrorInvalidDevice;
}

// One address range for all devices, so that a single call protects it.
char* device_memory() {
  static char* const memory = [] {
    void* const data = ::mmap(nullptr, kDeviceBytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TUTTI_CHECK(data != MAP_FAILED, "cannot reserve addresses for {} bytes of device memory",
                kDeviceBytes);
    return static_cast<char*>(data);
  }();
  return memory;
}

void protect(int protection) { ::mprotect(device_memory(), kDeviceBytes, protection); }

// The first gap of `bytes` bytes; null if there is none.
char* find_gap(size_t bytes) {
  char* at = device_memory();
  for (auto block = blocks.lower_bound(at); block != blocks.end(); ++block) {
    if (block->second.type != cudaMemoryTypeDevice) continue;
    if (static_cast<size_t>(block->first - at) >= bytes) break;
    at = block->first + block->second.bytes;
  }
  return static_cast<size_t>(device_memory() + kDeviceBytes - at) >= bytes ? at : nullptr;
}

size_t used_bytes() {
  size_t used = 0;
  for (const auto& [data, block] : blocks) {
    if (block.type == cudaMemoryTypeDevice) used += block.bytes;
  }
  return used;
}

}  // namespace

namespace tutti::engine::on_host {

DeviceMemoryAccess::DeviceMemoryAccess() {
  const std::lock_guard lock(all);
  if (accesses++ == 0) protect(PROT_READ | PROT_WRITE);
}
DeviceMemoryAccess::~DeviceMemoryAccess() {
  const std::lock_guard lock(all);
  if (--accesses == 0) protect(PROT_NONE);
}

cudaError_t check_launch(const void* kernel, const cudaLaunchConfig_t& config) {
  const dim3& block = config.blockDim;
  const dim3& grid = config.gridDim;
  int limit = 0;
  {
    const std::lock_guard lock(all);
    limit = shared_limits[kernel];
  }
  const size_t most = std::max(kDefaultShared, static_cast<size_t>(limit));
  if (devices_are_lost()) return set_last(cudaErrorLaunchFailure);
  if (device_of(config.stream) != current_device()) return set_last(cudaErrorInvalidResourceHandle);
  const bool fits = block.count() >= 1 && block.count() <= kMostThreads && block.z <= 64 &&
                    grid.count() >= 1 && grid.x < 1U << 31 && grid.y <= kMostRows &&
                    grid.z <= kMostRows && config.dynamicSmemBytes <= most;
  return set_last(fits ? cudaSuccess : cudaErrorInvalidConfiguration);
}

int current_device() { return device_here; }

}  // namespace tutti::engine::on_host

using tutti::engine::on_host::captures;
using tutti::engine::on_host::DeviceMemoryAccess;
using tutti::engine::on_host::devices_are_lost;
using tutti::engine::on_host::enqueue;
using tutti::engine::on_host::synchronize_device;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > kMostShared) {
    return set_last(cudaErrorInvalidValue);
  }
  const std::lock_guard lock(all);
  shared_limits[kernel] = value;
  return cudaSuccess;
}

// ---- Errors -------------------------------------------------------------------------------------

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorCudartUnloading: return "cudaErrorCudartUnloading";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
  }
  return "unknown";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

// ---- The device ---------------------------------------------------------------------------------

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = device_here;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const cudaError_t result = set_last(check_device(device));
  if (result == cudaSuccess) device_here = device;
  return result;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {"the host", reported_bytes(device), 1, 9, 0};
  return set_last(check_device(device));
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  switch (attribute) {
    case cudaDevAttrClockRate: *value = 1'000'000; break;  // clock64() counts nanoseconds
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
  }
  return set_last(check_device(device));
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(device));
  return set_last(check_device(device));
}

// ---- Memory -------------------------------------------------------------------------------------

// Waits for work that may use the memory.
static cudaError_t release(void* data, cudaMemoryType type) {
  const auto find = [&] {
    const auto found = blocks.find(static_cast<char*>(data));
    return found != blocks.end() && found->second.type == type ? found : blocks.end();
  };
  int device = 0;
  {
    const std::lock_guard lock(all);
    if (find() == blocks.end()) return cudaErrorInvalidValue;
    device = find()->second.device;
  }
  synchronize_device(device);
  const std::lock_guard lock(all);
  if (type == cudaMemoryTypeHost) {
    std::free(data);
  } else {
    ::madvise(data, find()->second.bytes, MADV_DONTNEED);
  }
  blocks.erase(find());
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (captures()) return set_last(cudaErrorStreamCaptureUnsupported);
  const size_t whole = (std::max<size_t>(bytes, 1) + kGrain - 1) / kGrain * kGrain;
  {
    const std::lock_guard lock(all);
    char* const at = find_gap(whole);
    if (at == nullptr) return set_last(cudaErrorMemoryAllocation);
    blocks[at] = {whole, cudaMemoryTypeDevice, device_here};
    *data = at;
  }
  const DeviceMemoryAccess access;
  std::fill_n(static_cast<unsigned char*>(*data), std::min(bytes, kMostUndefined), kUndefined);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (captures()) return set_last(cudaErrorStreamCaptureUnsupported);
  return set_last(release(data, cudaMemoryTypeDevice));
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned /*flags*/) {
  if (captures()) return set_last(cudaErrorStreamCaptureUnsupported);
  if (::posix_memalign(data, kGrain, bytes) != 0) return set_last(cudaErrorMemoryAllocation);
  const std::lock_guard lock(all);
  blocks[static_cast<char*>(*data)] = {bytes, cudaMemoryTypeHost, device_here};
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  if (data == nullptr) return cudaSuccess;
  return set_last(release(data, cudaMemoryTypeHost));
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* data, unsigned /*flags*/) {
  *on_device = data;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {cudaMemoryTypeUnregistered, 0};
  const auto* at = static_cast<const char*>(address);
  const std::lock_guard lock(all);
  auto after = blocks.upper_bound(const_cast<char*>(at));
  if (after == blocks.begin()) return cudaSuccess;
  const auto& [begin, block] = *std::prev(after);
  if (at < begin + block.bytes) attributes->type = block.type;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(all);
  *total = kDeviceBytes;
  *free = kDeviceBytes - used_bytes();
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int byte, size_t bytes) {
  if (captures()) return set_last(cudaErrorStreamCaptureUnsupported);
  const DeviceMemoryAccess access;
  std::memset(data, byte, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes) {
  std::memcpy(const_cast<void*>(symbol), from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  if (devices_are_lost()) return set_last(cudaErrorLaunchFailure);
  enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int byte, size_t bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(data, byte, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void* data, size_t pitch, int byte, size_t width, size_t height,
                              cudaStream_t stream) {
  if (width > pitch) return set_last(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memset(static_cast<char*>(data) + row * pitch, byte, width);
    }
  });
  return cudaSuccess;
}
