// Streams, events and graphs of the CUDA runtime on the host.
//
// A stream is a queue. Work is done by who waits for it, as late as that allows; streams of which
// one waits for the other's event do theirs in that order. A captured stream gives its work to a
// graph, as do others that wait for an event of it, until it has waited for theirs: one host thread
// captures, so the order in which it enqueues is one that all dependencies allow.
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tutti/engine/cuda/on_host/device_memory_guard.h"
#include "tutti/engine/cuda/on_host/queue.h"

using Work = std::function<void()>;

struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace {

// What is captured: by its origin, and others that have joined.
struct Capture {
  cudaStream_t origin = nullptr;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::map<cudaStream_t, uint64_t> given;    // work, by stream
  std::map<cudaStream_t, uint64_t> awaited;  // of that, by the origin
};

std::mutex all;  // guards everything here
std::condition_variable changed;
std::set<cudaStream_t> streams;
thread_local int captures_here = 0;

}  // namespace

struct CUstream_st {
  std::deque<Work> work;
  uint64_t given = 0, done = 0;
  bool is_busy = false;
  std::shared_ptr<Capture> capture;
};

struct CUevent_st {
  cudaStream_t stream = nullptr;
  uint64_t position = 0;             // after so much of the stream's work
  std::shared_ptr<Capture> capture;  // it was recorded in
  std::chrono::steady_clock::time_point time;
};

namespace {

// Until the stream has done as much. Called without the lock.
void advance(cudaStream_t stream, uint64_t until) {
  std::unique_lock lock(all);
  if (stream->done >= until) return;
  lock.unlock();
  const tutti::engine::on_host::DeviceMemoryAccess access;
  lock.lock();
  while (stream->done < until) {
    if (stream->is_busy) {
      changed.wait(lock);
      continue;
    }
    const Work work = std::move(stream->work.front());
    stream->work.pop_front();
    stream->is_busy = true;
    lock.unlock();
    work();
    lock.lock();
    stream->is_busy = false;
    ++stream->done;
    changed.notify_all();
  }
}

// With the lock.
void give(cudaStream_t stream, Work work) {
  if (stream->capture) {
    ++stream->capture->given[stream];
    stream->capture->graph->work.push_back(std::move(work));
    return;
  }
  stream->work.push_back(std::move(work));
  ++stream->given;
}

}  // namespace

namespace tutti::engine::on_host {

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(all);
  give(stream, std::move(work));
}

bool captures() { return captures_here > 0; }

}  // namespace tutti::engine::on_host

// ---- Streams ------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new CUstream_st;
  const std::lock_guard lock(all);
  streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  uint64_t given = 0;
  {
    const std::lock_guard lock(all);
    if (stream->capture) return cudaErrorStreamCaptureUnsupported;
    given = stream->given;
  }
  advance(stream, given);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t result = cudaStreamSynchronize(stream);
  if (result != cudaSuccess) return result;
  {
    const std::lock_guard lock(all);
    streams.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  std::vector<std::pair<cudaStream_t, uint64_t>> given;
  {
    const std::lock_guard lock(all);
    for (const cudaStream_t stream : streams) given.emplace_back(stream, stream->given);
  }
  for (const auto& [stream, position] : given) advance(stream, position);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const std::lock_guard lock(all);
  if (event->capture) {
    if (!stream->capture) {  // it joins
      stream->capture = event->capture;
      stream->capture->given[stream] = 0;
    }
    if (stream->capture != event->capture) return cudaErrorStreamCaptureUnsupported;
    if (stream == event->capture->origin) {
      event->capture->awaited[event->stream] = event->position;
    }
    return cudaSuccess;
  }
  if (event->stream == nullptr || event->stream == stream) return cudaSuccess;
  if (stream->capture) return cudaErrorStreamCaptureUnsupported;  // of work outside of the graph
  give(stream, [other = event->stream, position = event->position] { advance(other, position); });
  return cudaSuccess;
}

// ---- Events -------------------------------------------------------------------------------------

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  // Its time may still be written.
  if (event->stream != nullptr && !event->capture) advance(event->stream, event->position);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(all);
  event->stream = stream;
  event->capture = stream->capture;
  if (stream->capture) {
    event->position = stream->capture->given[stream];
    return cudaSuccess;
  }
  give(stream, [event] { event->time = std::chrono::steady_clock::now(); });
  event->position = stream->given;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->capture) return cudaErrorStreamCaptureUnsupported;
  if (event->stream != nullptr) advance(event->stream, event->position);
  return cudaSuccess;
}

// Who asks again and again finds it done in the end: each time a piece of work is.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  uint64_t next = 0;
  {
    const std::lock_guard lock(all);
    if (event->capture) return cudaErrorStreamCaptureUnsupported;
    if (event->stream == nullptr || event->stream->done >= event->position) return cudaSuccess;
    if (event->stream->is_busy) return cudaErrorNotReady;
    next = event->stream->done + 1;
  }
  advance(event->stream, next);
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  for (const cudaEvent_t event : {begin, end}) {
    if (event->stream == nullptr || event->capture) return cudaErrorInvalidResourceHandle;
    const std::lock_guard lock(all);
    if (event->stream->done < event->position) return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

// ---- Graphs -------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  const std::lock_guard lock(all);
  if (stream->capture) return cudaErrorStreamCaptureUnsupported;
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  ++captures_here;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(all);
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = std::move(stream->capture);
  stream->capture = nullptr;
  if (!capture || capture->origin != stream) return cudaErrorStreamCaptureUnsupported;
  --captures_here;
  bool all_joined = true;
  for (const auto& [other, given] : capture->given) {
    if (other == stream) continue;
    other->capture = nullptr;
    all_joined = all_joined && capture->awaited[other] == given;
  }
  if (!all_joined) return cudaErrorStreamCaptureUnjoined;
  *graph = capture->graph.release();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t /*executable*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::lock_guard lock(all);
  if (stream->capture) return cudaErrorStreamCaptureUnsupported;
  for (const Work& work : executable->work) give(stream, work);
  return cudaSuccess;
}
