// Memory of the device that the host cannot reach: only who does a stream's work may.
#pragma once

namespace tutti::engine::on_host {

// While any of these lives, threads of this process reach the device's memory: a thread that
// touches it without one is found where no other works meanwhile.
class DeviceMemoryAccess {
 public:
  DeviceMemoryAccess();
  ~DeviceMemoryAccess();
  DeviceMemoryAccess(const DeviceMemoryAccess&) = delete;
  DeviceMemoryAccess& operator=(const DeviceMemoryAccess&) = delete;
};

}  // namespace tutti::engine::on_host
