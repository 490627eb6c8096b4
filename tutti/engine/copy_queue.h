// Copies on a queue of their own, between host and device while the stream computes. No call blocks
// the host; queues and stream wait for each other. (The CPU's stream is synchronous, so there the
// caller blocks wherever the stream has to wait.)
#pragma once

#include <cstdint>
#include <memory>

namespace tutti::engine {

class Stream;

// Copies run one after another in the order of the calls. Bound to one stream, which outlives it;
// one host thread uses a stream and its queues at a time. A step that is captured for replay
// (Stream::replay) must begin with after_stream() and end with a mark that the stream waits for,
// and must not wait for a mark of another step.
class CopyQueue {
 public:
  // Numbered points in the queue (events of CUDA); a mark replaces the last one of its number.
  static constexpr int kPoints = 16;

  virtual ~CopyQueue() = default;
  // to = from. Either is stream memory or an arena of the host, pinned if the stream has a device.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void mark(int point) = 0;

  // Later copies wait for all work enqueued on the stream so far ...
  virtual void after_stream() = 0;
  // ... or for the last mark of `other`, a queue of the same stream, which must exist.
  virtual void after(const CopyQueue& other, int point) = 0;
  // Later work of the stream waits for the last mark of this queue, which must exist.
  virtual void stream_after(int point) = 0;
};

// One queue per direction, to use a full-duplex link both ways.
struct CopyQueues {
  std::unique_ptr<CopyQueue> out;  // to the host
  std::unique_ptr<CopyQueue> in;
};

// Copies on a thread of its own.
std::unique_ptr<CopyQueue> make_cpu_copy_queue();

}  // namespace tutti::engine
