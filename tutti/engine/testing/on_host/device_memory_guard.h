// Protects device memory from the host: only the thread that executes a stream's work may access
// it.
#pragma once

namespace tutti::engine::on_host {

// While any of these lives, all threads of this process can access device memory. An access without
// one is therefore detected only if no other thread executes work at the same time.
class DeviceMemoryAccess {
 public:
  DeviceMemoryAccess();
  ~DeviceMemoryAccess();
  DeviceMemoryAccess(const DeviceMemoryAccess&) = delete;
  DeviceMemoryAccess& operator=(const DeviceMemoryAccess&) = delete;
};

}  // namespace tutti::engine::on_host
