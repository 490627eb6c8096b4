// Streams, events and graphs of the CUDA runtime on the host.
//
// A stream is a queue. The waiting thread executes its work, as late as possible. Streams that wait
// for an event of another stream keep that order; when ranks exchange data, the thread that waits
// for one rank also advances the others as far as their work is enqueued. No thread holds a stream
// while it waits: work that cannot run now is left and tried again after a change. A captured
// stream adds its work to a graph, and so do streams that wait for one of its events, until it has
// waited for theirs: a single host thread captures, so the order in which it enqueues satisfies all
// dependencies.
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

using Work = std::function<bool()>;  // returns whether it is done

struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace {

// Changes that streams of other libraries wait for are not notified: poll for them.
constexpr std::chrono::milliseconds kPollInterval(1);
// Without progress for this long, streams are deadlocked.
constexpr std::chrono::seconds kHalted(120);

// A capture of the origin stream and of others that have joined it.
struct Capture {
  cudaStream_t origin = nullptr;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::map<cudaStream_t, uint64_t> given;    // pieces of work, by stream
  std::map<cudaStream_t, uint64_t> awaited;  // those that the origin has waited for
};

std::mutex all;  // guards everything here
std::condition_variable changed;
uint64_t changes = 0;  // completed pieces of work
int running = 0;       // pieces of work that are executing and will complete by themselves
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
  uint64_t position = 0;             // in the stream's work
  std::shared_ptr<Capture> capture;  // in which it was recorded
  // When the stream reached it; shared with the stream's work, which may outlive the event.
  std::shared_ptr<std::chrono::steady_clock::time_point> time =
      std::make_shared<std::chrono::steady_clock::time_point>();
};

namespace {

// Includes destroyed streams: events, other ranks and static destructors may still refer to them.
std::deque<CUstream_st>& streams() {
  static auto* const made = new std::deque<CUstream_st>;
  return *made;
}

// Waits until the stream has completed `until` pieces of work. Called without the lock.
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
      TUTTI_CHECK(
          now - moved < kHalted,
          "no stream has made progress for {} s: deadlock between streams, or a missing call "
          "of the host (device {}, {} of {} pieces of work)",
          kHalted.count(), stream->device, stream->done, until);
    }
    {
      const DeviceMemoryAccess access;
      if (try_advance(stream, until)) return;
    }
    std::unique_lock lock(all);
    changed.wait_for(lock, kPollInterval, [&] { return changes != seen; });
  }
}

// Called with the lock.
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

bool try_advance(cudaStream_t stream, uint64_t position) {
  std::unique_lock lock(all);
  while (stream->done < position) {
    if (stream->is_busy) return false;
    stream->is_busy = true;
    const Work& work = stream->work.front();  // stays valid: others only append
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
    if (!stream->capture) {  // it joins the capture
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
  if (stream->capture) return cudaErrorStreamCaptureUnsupported;  // waits for uncaptured work
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

// Each call executes one piece of work, so that polling terminates.
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
