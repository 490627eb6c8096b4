// In which order the devices of NCCL on the host were given their calls, and what follows from it:
// with NCCL_LAUNCH_ORDER_IMPLICIT and CUDA from 12.3 on a kernel starts when the one that was
// launched before it on the device has started, whatever communicators and streams they are of
// (NCCL user guide, "Using multiple NCCL communicators concurrently").
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace tutti::comm::on_host {

struct Launch {
  cudaStream_t stream = nullptr;
  uint64_t position = 0;  // among the stream's work
  bool has_started = false;
  std::shared_ptr<Launch> before;  // on the same device; null when it has started
};

// All of it in one lock of its caller's.
class Launches {
 public:
  // The next one of `device`.
  std::shared_ptr<Launch> add(int device);
  static void start(Launch& launch);

  // A launch on `device` of a collective among `devices`, of the communicators that share `owner`.
  // Ends the process where two devices launch what they have in common in different orders.
  struct Collective {
    const void* owner = nullptr;
    const void* exchange = nullptr;
    std::string what;
  };
  void note(int device, const std::set<int>& devices, const Collective& collective);
  // They were aborted: their ranks no longer launch the same.
  void forget(const void* owner);

 private:
  std::map<int, std::shared_ptr<Launch>> last_;  // by device
  // What a device has launched and another one has not yet.
  std::map<std::pair<int, int>, std::deque<Collective>> ahead_;
  std::set<const void*> forgotten_;
};

// The calls of a device: one thread at a time (NCCL_LAUNCH_RACE_FATAL).
class LaunchingThread {
 public:
  explicit LaunchingThread(int device);
  ~LaunchingThread();
  LaunchingThread(const LaunchingThread&) = delete;
  LaunchingThread& operator=(const LaunchingThread&) = delete;
  bool is_alone() const { return is_alone_; }

 private:
  int device_;
  bool is_alone_;
};

}  // namespace tutti::comm::on_host
