// Enqueues work on a stream of the CUDA runtime on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace tutti::engine::on_host {

// Enqueues work after all earlier work of the stream. It runs only when a thread waits for it,
// which exposes missing synchronisation. If the stream is captured, it runs when its graph is
// launched.
void enqueue(cudaStream_t stream, std::function<void()> work);

// Enqueues work that is attempted repeatedly: it returns false while it waits for other streams,
// whose work it advances as far as possible (try_advance). Returns its position in the stream. Not
// allowed during capture.
uint64_t enqueue_attempts(cudaStream_t stream, std::function<bool()> attempt);

// Executes the stream's work up to that position as far as possible without waiting for another
// thread; true if all of it is done.
bool try_advance(cudaStream_t stream, uint64_t position);

// Whether this thread captures a stream, and must neither allocate nor free.
bool captures();
bool is_captured(cudaStream_t stream);

// Devices are numbered from 0; a thread uses the first one until it calls cudaSetDevice.
int current_device();
int device_of(cudaStream_t stream);
// Waits for all streams of a device.
void synchronize_device(int device);

// Called when a kernel traps: all later launches, copies and waits fail.
void lose_devices();
bool devices_are_lost();

}  // namespace tutti::engine::on_host
