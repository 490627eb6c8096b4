#include "tutti/engine/cuda/check.h"

#include <string>

#include "tutti/base/check.h"
#include "tutti/engine/cuda/device_fault.h"
#include "tutti/engine/device_calls.h"

namespace tutti::engine {
namespace {

// Suffix of a message. Kernels run asynchronously, so the report may belong to another operation.
std::string fault_suffix() {
  const std::string text = device_fault_text();
  return text.empty() ? "" : fmt::format("; a kernel trapped: {}", text);
}

}  // namespace

void cuda_check(cudaError_t result, const char* call, const char* op,
                const std::source_location& at) {
  note_device_call(call);
  if (result == cudaSuccess) return;
  int device = -1;
  cudaGetDevice(&device);
  check_failed(at.file_name(), static_cast<int>(at.line()), call,
               fmt::format("{}{}device {}: {} ({}): {}{}", op, op[0] == '\0' ? "" : ": ", device,
                           cudaGetErrorName(result), static_cast<int>(result),
                           cudaGetErrorString(result), fault_suffix()));
}

void library_check(bool good, const char* library, const char* call, int status, const char* text,
                   const char* op, const std::source_location& at) {
  note_device_call(call);
  if (good) return;
  const cudaError_t pending = cudaPeekAtLastError();
  check_failed(at.file_name(), static_cast<int>(at.line()), call,
               fmt::format("{}: {} status {} ({}); the runtime's last error is {}{}", op, library,
                           status, text, cudaGetErrorName(pending), fault_suffix()));
}

bool is_pageable(const void* address, const char* op) {
  cudaPointerAttributes attributes = {};
  cuda_check(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes", op);
  return attributes.type == cudaMemoryTypeUnregistered;
}

void cuda_copy(void* to, const void* from, int64_t bytes, cudaStream_t queue, const char* op) {
  if (device_calls_are_noted() && (is_pageable(to, op) || is_pageable(from, op))) {
    note_device_call("cudaMemcpyAsync of pageable memory");
  }
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, queue),
             "cudaMemcpyAsync", op);
}

}  // namespace tutti::engine
