// Streams, events and graphs of the CUDA runtime on the host.
//
// A stream is a queue. Work is done by who waits for it, as late as that allows; streams of which
// one waits for the other's event do theirs in that order, and where ranks exchange data, who waits
// for one's part does the others' so far as they were given it. Nobody keeps a stream while it
// waits: what cannot be done now is left and tried again when something has changed. A captured
// stream gives its work to a graph, as do others that wait for an event of it, until it has waited
// for theirs: one host thread captures, so the order in which it enqueues is one that all
// dependencies allow.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/engine/testing/on_host/device_memory_guard.h"
#include "tutti/engine/testing/on_host/queue.h"

using tutti::engine::on_host::current_device;
using tutti::engine::on_host::DeviceMemoryAccess;
using tutti::engine::on_host::try_advance;

using Work = std::function<bool()>;  // whether it is done

struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace {

// Something may have changed that nobody has told: what streams of other libraries wait for.
constexpr std::chrono::milliseconds kLookAgain(1);
// Streams that wait for each other: nothing was done for so long, nor is being done.
constexpr std::chrono::seconds kHalted(120);

// What is captured: by its origin, and others that have joined.
struct Capture {
  cudaStream_t origin = nullptr;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::map<cudaStream_t, uint64_t> given;    // work, by stream
  std::map<cudaStream_t, uint64_t> awaited;  // of that, by the origin
};

std::mutex all;  // guards everything here
std::condition_variable changed;
uint64_t changes = 0;  // pieces of work that were done
int running = 0;       // of those that end by themselves, now
thread_local int captures_here = 0;
std::atomic<bool> is_lost{false};

cudaError_t unless_lost() { return is_lost.load() ? cudaErrorLaunchFailure : cudaSuccess; }

}  // namespace

struct CUstream_st {
  int device = 0;
  std::deque<Work> work;
  uint64_t given = 0, done = 0;
  bool is_busy = false;
  std::shared_ptr<Capture> capture;
};

struct CUevent_st {
  int device = 0;
  cudaStream_t stream = nullptr;
  uint64_t position = 0;             // after so much of the stream's work
  std::shared_ptr<Capture> capture;  // it was recorded in
  // When the stream came there; of the stream's work, too, which may outlive the event.
  std::shared_ptr<std::chrono::steady_clock::time_point> time =
      std::make_shared<std::chrono::steady_clock::time_point>();
};

namespace {

// Also those that are destroyed: events, other ranks and what ends last may still name them.
std::deque<CUstream_st>& streams() {
  static auto* const made = new std::deque<CUstream_st>;
  return *made;
}

// Until the stream has done as much. Called without the lock.
void advance(cudaStream_t stream, uint64_t until) {
  auto moved = std::chrono::steady_clock::now();
  uint64_t moved_to = 0;
  for (;;) {
    uint64_t seen = 0;
    {
      const std::lock_guard lock(all);
      if (stream->done >= until) return;
      seen = changes;
      const auto now = std::chrono::steady_clock::now();
      if (seen != moved_to || running > 0) {
        moved_to = seen;
        moved = now;
      }
      TUTTI_CHECK(now - moved < kHalted,
                  "no stream of any device has done anything for {} s: they wait for each other, "
                  "or for a host that does not come (device {}, {} of {} pieces of work)",
                  kHalted.count(), stream->device, stream->done, until);
    }
    {
      const DeviceMemoryAccess access;
      if (try_advance(stream, until)) return;
    }
    std::unique_lock lock(all);
    changed.wait_for(lock, kLookAgain, [&] { return changes != seen; });
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
  give(stream, [work = std::move(work)] {
    {
      const std::lock_guard now(all);
      ++running;
    }
    work();
    const std::lock_guard now(all);
    --running;
    return true;
  });
}

uint64_t enqueue_attempts(cudaStream_t stream, std::function<bool()> attempt) {
  const std::lock_guard lock(all);
  give(stream, std::move(attempt));
  return stream->given;
}

bool try_advance(cudaStream_t stream, uint64_t place) {
  std::unique_lock lock(all);
  while (stream->done < place) {
    if (stream->is_busy) return false;
    stream->is_busy = true;
    const Work& work = stream->work.front();  // stays there: others only add behind it
    lock.unlock();
    const bool is_done = work();
    lock.lock();
    stream->is_busy = false;
    if (!is_done) return false;
    stream->work.pop_front();
    ++stream->done;
    ++changes;
    changed.notify_all();
  }
  return true;
}

void lose_devices() { is_lost.store(true); }
bool devices_are_lost() { return is_lost.load(); }

bool captures() { return captures_here > 0; }

bool is_captured(cudaStream_t stream) {
  const std::lock_guard lock(all);
  return stream->capture != nullptr;
}

int device_of(cudaStream_t stream) { return stream->device; }

void synchronize_device(int device) {
  std::vector<std::pair<cudaStream_t, uint64_t>> given;
  {
    const std::lock_guard lock(all);
    for (CUstream_st& stream : streams()) {
      if (stream.device == device) given.emplace_back(&stream, stream.given);
    }
  }
  for (const auto& [stream, position] : given) advance(stream, position);
}

}  // namespace tutti::engine::on_host

// ---- Streams ------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  const std::lock_guard lock(all);
  *stream = &streams().emplace_back();
  (*stream)->device = current_device();
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
  return unless_lost();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaDeviceSynchronize() {
  tutti::engine::on_host::synchronize_device(current_device());
  return unless_lost();
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
  give(stream, [other = event->stream, position = event->position] {
    return try_advance(other, position);
  });
  return cudaSuccess;
}

// ---- Events -------------------------------------------------------------------------------------

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  (*event)->device = current_device();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
  const std::lock_guard lock(all);
  event->stream = stream;
  event->capture = stream->capture;
  if (stream->capture) {
    event->position = stream->capture->given[stream];
    return cudaSuccess;
  }
  give(stream, [time = event->time] {
    *time = std::chrono::steady_clock::now();
    return true;
  });
  event->position = stream->given;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->capture) return cudaErrorStreamCaptureUnsupported;
  if (event->stream != nullptr) advance(event->stream, event->position);
  return unless_lost();
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
  const DeviceMemoryAccess access;
  try_advance(event->stream, next);
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  for (const cudaEvent_t event : {begin, end}) {
    if (event->stream == nullptr || event->capture) return cudaErrorInvalidResourceHandle;
    const std::lock_guard lock(all);
    if (event->stream->done < event->position) return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
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
