// Copies beside a stream's own queue: what is brought over or taken away while the stream computes.
// Nothing here makes the host wait; queues and stream wait for each other. (The CPU's stream works
// as it is called, so there it is the caller who waits where the stream has to.)
#pragma once

#include <cstdint>
#include <memory>

namespace tutti::engine {

class Stream;

// Copies run one after another in the order of the calls. Bound to one stream, which outlives it;
// one host thread uses a stream and its queues at a time. Where a step is recorded for replay
// (Stream::replay), it has to begin with after_stream() and to end with a mark that the stream
// waits for, and no call waits for a mark of another step.
class CopyQueue {
 public:
  // Points in the queue, by number; a mark of the same number takes the place of the one before.
  static constexpr int kPoints = 16;

  virtual ~CopyQueue() = default;
  // to = from; memory of the stream or arenas of the host, pinned where the stream has a device.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void mark(int point) = 0;

  // What is enqueued here from now on begins after all that the stream has been given ...
  virtual void after_stream() = 0;
  // ... or after the last mark of `other`, a queue of the same stream. There must be one.
  virtual void after(const CopyQueue& other, int point) = 0;
  // What the stream is given from now on begins after the last mark here. There must be one.
  virtual void stream_after(int point) = 0;
};

// One in each direction, so that both of a link are used.
struct CopyQueues {
  std::unique_ptr<CopyQueue> out;  // to the host
  std::unique_ptr<CopyQueue> in;
};

// A thread copies.
std::unique_ptr<CopyQueue> make_cpu_copy_queue();

}  // namespace tutti::engine
