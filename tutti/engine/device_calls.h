// Names of the calls that a device backend makes to its driver and libraries: for the test that the
// host never blocks while it enqueues a step, and for finding out where it does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::engine {

// Collects the calls of this thread while in scope. Of nested ones only the innermost collects.
class DeviceCalls {
 public:
  DeviceCalls();
  ~DeviceCalls();
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  // The subset in which the host waits (host_waits_in).
  std::vector<std::string> waits() const;

 private:
  friend void note_device_call(const char* name);
  std::vector<std::string> names_;
  DeviceCalls* outer_;
};

// Whether a DeviceCalls of this thread is in scope.
bool device_calls_are_noted();
// Backends call this with the name of each driver or library function that they call.
void note_device_call(const char* name);

// Whether a call of this name makes the host wait for the device: any synchronisation, synchronous
// copies (including "cudaMemcpyAsync of pageable memory"), and allocating or freeing device memory,
// which waits for all outstanding work.
bool host_waits_in(std::string_view name);

}  // namespace tutti::engine
