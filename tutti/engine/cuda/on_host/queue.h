// Work for a stream of the CUDA runtime on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace tutti::engine::on_host {

// After all that the stream was given before: when somebody waits for it, and not sooner, so that
// who forgets to wait finds nothing done. While the stream is captured, when its graph is launched.
void enqueue(cudaStream_t stream, std::function<void()> work);

// Whether this thread captures a stream, and may neither allocate nor free.
bool captures();

}  // namespace tutti::engine::on_host
