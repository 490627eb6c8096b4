// Time of an operation on the device, by two events around it in its stream.
//
// The stream is idle and the host is slower than a small kernel, so a kernel that spins for
// kHoldSeconds delays the device first: the work that the host enqueues meanwhile then runs back to
// back. The time between the events includes the operation's kernels and copies, a microsecond or
// two for the events, and of the host's time only what exceeds the delay.
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

  void begin();                // the stream must be idle
  double end(const char* op);  // synchronises; seconds on the device since begin()

 private:
  CudaStream& stream_;
  int hold_cycles_ = 0;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace tutti::engine
