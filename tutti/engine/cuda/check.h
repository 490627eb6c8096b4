// Results of calls into CUDA's libraries. A failed call is a broken invariant or a broken device:
// it aborts with what was called for which operation, so that a fault is not met steps later. Every
// call is noted by its name (engine/device_calls.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <source_location>

namespace tutti::engine {

// `call` says what was called, `op` for which operation of the table (or what else it was for).
void cuda_check(cudaError_t result, const char* call, const char* op = "",
                const std::source_location& at = std::source_location::current());

// The same for the status numbers of the other libraries; `text` says what the number means.
void library_check(bool good, const char* library, const char* call, int status, const char* text,
                   const char* op,
                   const std::source_location& at = std::source_location::current());

// Whether the driver does not know this memory of the host, so that a copy of it may end before the
// call returns, or, where devices read such memory themselves, long after.
bool is_pageable(const void* address, const char* op);

// to = from, enqueued; whose memory either is the driver finds (unified addressing). A copy of
// pageable memory of the host is noted as one in which the host waits.
void cuda_copy(void* to, const void* from, int64_t bytes, cudaStream_t queue, const char* op);

}  // namespace tutti::engine
