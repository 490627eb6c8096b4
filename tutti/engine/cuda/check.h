// Checks results of calls into CUDA's libraries. A failed call is a broken invariant or a broken
// device: it aborts and names the call and the operation, so that the fault does not surface steps
// later. Every call is recorded by name (engine/device_calls.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <source_location>

namespace tutti::engine {

// `call` is the function that was called, `op` the operation of the table or another purpose.
void cuda_check(cudaError_t result, const char* call, const char* op = "",
                const std::source_location& at = std::source_location::current());

// The same for status codes of other libraries; `text` describes the status.
void library_check(bool good, const char* library, const char* call, int status, const char* text,
                   const char* op,
                   const std::source_location& at = std::source_location::current());

// Whether this is pageable host memory, unknown to the driver. A copy of it may complete before the
// call returns or, if devices access such memory directly, long after.
bool is_pageable(const void* address, const char* op);

// to = from, enqueued; the driver infers the kind of memory of each (unified addressing). A copy of
// pageable host memory is recorded as a call in which the host waits.
void cuda_copy(void* to, const void* from, int64_t bytes, cudaStream_t queue, const char* op);

}  // namespace tutti::engine
