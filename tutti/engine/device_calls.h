// The calls that a device's backend makes to its driver and libraries, by name: for the test that a
// step is enqueued without the host waiting for anything, and for finding out why one waits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::engine {

// Collects the calls of this thread while it is in scope; the innermost does.
class DeviceCalls {
 public:
  DeviceCalls();
  ~DeviceCalls();
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  // Of these, the ones in which the host waits (host_waits_in).
  std::vector<std::string> waits() const;

 private:
  friend void note_device_call(const char* name);
  std::vector<std::string> names_;
  DeviceCalls* outer_;
};

// Whether anybody collects the calls of this thread.
bool device_calls_are_noted();
// To be called by backends, with the name of each function that they call.
void note_device_call(const char* name);

// Whether a call of this name makes the host wait for the device: synchronisation of any kind,
// copies that are not asynchronous (also "cudaMemcpyAsync of pageable memory"), and what allocates
// or frees memory of the device, which waits for everything that is under way.
bool host_waits_in(std::string_view name);

}  // namespace tutti::engine
