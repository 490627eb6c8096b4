// What an operation takes on the device: two events around it in its stream.
//
// The stream is at rest and the host is slower than a small kernel, so the device is held back
// first, by a kernel that spins for kHoldSeconds: what the host enqueues meanwhile then runs back
// to back. Between the events are the operation's kernels and copies, a microsecond or two of the
// events themselves, and of the host only what exceeds the hold.
#pragma once

#include <cuda_runtime_api.h>

namespace tutti::engine {

class CudaStream;

class OpTimer {
 public:
  // Enough for the host to enqueue an operation of ten kernels.
  static constexpr double kHoldSeconds = 60e-6;

  explicit OpTimer(CudaStream& stream);
  ~OpTimer();
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

  void begin();                // after the stream was waited for
  double end(const char* op);  // waits; seconds on the device since begin()

 private:
  CudaStream& stream_;
  int hold_cycles_ = 0;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace tutti::engine
