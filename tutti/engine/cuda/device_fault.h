// The report of a kernel's failed check (device_check.h), in pinned memory that all devices can
// access: one per process, since a fault ends it.
#pragma once

#include <string>

namespace tutti::engine {

struct DeviceFault {
  static constexpr int kText = 96;
  char what[kText] = {};
  long long a = 0, b = 0;
  unsigned block[3] = {}, thread = 0;
  volatile int is_written = 0;  // the other fields are complete
};

// Registers a source file of kernels by its device variable that points to the report.
class DeviceFaultUser {
 public:
  explicit DeviceFaultUser(DeviceFault* const& variable);
};

// Sets the variables of all source files on the current device, once per device. Called by streams.
void prepare_device_faults();

// "embedding: token outside the vocabulary (token, row): 50304, 7 (block 0 0 0, thread 7)", or
// empty without a report.
std::string device_fault_text();

}  // namespace tutti::engine
