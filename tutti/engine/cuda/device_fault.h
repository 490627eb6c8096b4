// What a kernel has found wrong (device_check.h), in pinned memory that all devices reach: one for
// the process, since a fault is its end.
#pragma once

#include <string>

namespace tutti::engine {

struct DeviceFault {
  static constexpr int kText = 96;
  char what[kText] = {};
  long long a = 0, b = 0;
  unsigned block[3] = {}, thread = 0;
  volatile int is_told = 0;  // everything else is written
};

// A source of kernels with a variable of the device, where its kernels find the place.
class DeviceFaultUser {
 public:
  explicit DeviceFaultUser(DeviceFault* const& variable);
};

// Tells all sources of kernels on the device that is current. Once for each device; streams do it.
void prepare_device_faults();

// "embedding: token outside the vocabulary (token, row): 50304, 7 (block 0 0 0, thread 7)"; empty:
// no kernel has said anything.
std::string device_fault_text();

}  // namespace tutti::engine
