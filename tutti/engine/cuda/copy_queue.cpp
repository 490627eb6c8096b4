#include "tutti/engine/cuda/copy_queue.h"

#include "tutti/base/check.h"
#include "tutti/engine/cuda/check.h"

namespace tutti::engine {

// Events without timing are cheapest. Neither stream synchronises with the default stream.
CudaCopyQueue::CudaCopyQueue(CudaStream& stream) : stream_(stream) {
  cuda_check(cudaSetDevice(stream_.device()), "cudaSetDevice", "copy queue");
  cuda_check(cudaStreamCreateWithFlags(&queue_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
             "copy queue");
  const auto make_event = [](cudaEvent_t& event) {
    cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags",
               "copy queue");
  };
  make_event(stream_point_);
  for (cudaEvent_t& point : points_) make_event(point);
}

// At process exit the driver may be unloaded: results are ignored.
CudaCopyQueue::~CudaCopyQueue() {
  cudaStreamSynchronize(queue_);
  for (cudaEvent_t point : points_) cudaEventDestroy(point);
  cudaEventDestroy(stream_point_);
  cudaStreamDestroy(queue_);
}

cudaEvent_t CudaCopyQueue::event(int point) const {
  const auto index = static_cast<size_t>(point);
  TUTTI_CHECK(marked_.at(index), "point {} was never marked", point);
  return points_.at(index);
}

void CudaCopyQueue::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  cuda_copy(to, from, bytes, queue_, "copy queue");
  if (stream_.blocking()) {
    cuda_check(cudaStreamSynchronize(queue_), "cudaStreamSynchronize", "copy queue");
  }
}

void CudaCopyQueue::mark(int point) {
  const auto index = static_cast<size_t>(point);
  cuda_check(cudaEventRecord(points_.at(index), queue_), "cudaEventRecord", "copy queue");
  marked_[index] = true;
}

// A wait refers to the event's last record at the time of the call, so one event is enough.
void CudaCopyQueue::after_stream() {
  cuda_check(cudaEventRecord(stream_point_, stream_.handle()), "cudaEventRecord", "copy queue");
  cuda_check(cudaStreamWaitEvent(queue_, stream_point_, cudaEventWaitDefault),
             "cudaStreamWaitEvent", "copy queue");
}

void CudaCopyQueue::after(const CopyQueue& other, int point) {
  const auto& first = static_cast<const CudaCopyQueue&>(other);
  cuda_check(cudaStreamWaitEvent(queue_, first.event(point), cudaEventWaitDefault),
             "cudaStreamWaitEvent", "copy queue");
}

void CudaCopyQueue::stream_after(int point) {
  cuda_check(cudaStreamWaitEvent(stream_.handle(), event(point), cudaEventWaitDefault),
             "cudaStreamWaitEvent", "copy queue");
}

}  // namespace tutti::engine
