#include "tutti/engine/device_calls.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace tutti::engine {
namespace {

thread_local DeviceCalls* innermost = nullptr;

}  // namespace

DeviceCalls::DeviceCalls() : outer_(innermost) { innermost = this; }
DeviceCalls::~DeviceCalls() { innermost = outer_; }

std::vector<std::string> DeviceCalls::waits() const {
  std::vector<std::string> out;
  std::copy_if(names_.begin(), names_.end(), std::back_inserter(out), host_waits_in);
  return out;
}

bool device_calls_are_noted() { return innermost != nullptr; }

void note_device_call(const char* name) {
  if (innermost != nullptr) innermost->names_.emplace_back(name);
}

bool host_waits_in(std::string_view name) {
  // Names without a version suffix; "cudaMallocAsync" does not match.
  constexpr std::array<std::string_view, 10> kWaiting = {
      "synchronize", "cudaMalloc",   "cudaFree",   "cudaHostAlloc",    "cudaMallocHost",
      "cudaMemcpy",  "cudaFreeHost", "cudaMemset", "cudaHostRegister", "cudaHostUnregister"};
  if (name.find("Synchronize") != std::string_view::npos) return true;
  if (name.find("pageable") != std::string_view::npos) return true;
  return std::find(kWaiting.begin(), kWaiting.end(), name) != kWaiting.end();
}

}  // namespace tutti::engine
