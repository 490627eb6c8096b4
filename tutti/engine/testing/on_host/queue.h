// Work for a stream of the CUDA runtime on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace tutti::engine::on_host {

// After all that the stream was given before: when somebody waits for it, and not sooner, so that
// who forgets to wait finds nothing done. While the stream is captured, when its graph is launched.
void enqueue(cudaStream_t stream, std::function<void()> work);

// Work that is done by trying: false while it waits for that of other streams, of which it does
// what it can (try_advance). Returns its place among the stream's work. Not while it is captured.
uint64_t enqueue_attempts(cudaStream_t stream, std::function<bool()> attempt);

// Does the stream's work up to that place, so far as it can be done now, in no case waiting for
// another thread; true when all of it is done.
bool try_advance(cudaStream_t stream, uint64_t place);

// Whether this thread captures a stream, and may neither allocate nor free.
bool captures();
bool is_captured(cudaStream_t stream);

// Devices are numbered from 0; each thread uses the first one until it has chosen (cudaSetDevice).
int current_device();
int device_of(cudaStream_t stream);
// Waits for all streams of one.
void synchronize_device(int device);

// A kernel has ended with a fault: from now on launches, copies and waits say so.
void lose_devices();
bool devices_are_lost();

}  // namespace tutti::engine::on_host
