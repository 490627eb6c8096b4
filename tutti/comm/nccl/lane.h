// An NCCL communicator with its own stream: its calls run in order, independent of all others. Only
// for sources built with NCCL.
//
// Communicators block: a call has launched its kernel when it returns, so the caller decides when
// it is launched, and no thread is started for it. What makes a call wait for other ranks is NCCL's
// connecting to them; connect() has that done for the first collective and the first message.
//
// NCCL allows one thread at a time to launch on a device, on any communicator, and calls a second
// one an error (NCCL user guide, "Thread Safety" and NCCL_LAUNCH_RACE_FATAL). So each call is made
// in the device's nccl_turn(), which is held until the call returns.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "tutti/comm/rendezvous/store.h"

namespace tutti::comm {

void check_cuda(cudaError_t result, const char* what);
std::timed_mutex& nccl_turn(int device);

// Runs `body` in a thread of its own with that device. Once the time is over it is left to itself,
// and so must own what it uses: false then. What it throws is thrown.
bool run_within(double seconds, int device, std::function<void()> body);

class NcclLane {
 public:
  struct Options {
    std::string name;
    std::string key;  // under which its ranks meet in the store
    int rank = 0, size = 0;
    int device = 0;       // which is current in every call
    int most_blocks = 0;  // of the device that a call takes; 0: as NCCL likes
  };
  explicit NcclLane(Options options);
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  // Waits for the other ranks and makes the communicator with them. Throws peer, naming the one
  // that is missing, when not all have come by then, and when NCCL fails.
  void connect(Store& store, double deadline_seconds);
  // Makes a call: body(communicator, stream) returns its result. It is on the stream then. Throws
  // peer when that is an error or the lane was aborted.
  template <typename Body>
  void issue(const Body& body) {
    const std::lock_guard turn(nccl_turn(options_.device));
    const ncclComm_t communicator = communicator_.load();
    if (communicator == nullptr) fail_aborted();
    begin_launch();
    const ncclResult_t result = body(communicator, stream_);
    end_launch();
    check(result);
  }
  // For how long a call has not returned; 0: none is under way. For any thread.
  double launching_seconds() const;

  // What is enqueued on the lane from now on comes after `event`.
  void after(cudaEvent_t event) const;
  // The lane has come as far as this call; returns its number, counted from 1.
  uint64_t mark();
  // Of that call, or a later one, which comes after it on the same stream.
  cudaEvent_t event_of(uint64_t number) const { return events_[number % kEvents]; }

  // Ends it with the other ranks when all calls are done; it is aborted where they are not by then.
  void end(double deadline_seconds);
  // At once, whatever it does. For any thread. Waits a moment for the device's turn; a call that
  // does not return then is one that NCCL itself has to give up.
  void abort();

  const std::string& name() const { return options_.name; }
  // What is wrong with it, in NCCL's words; empty: nothing, or a call is under way.
  std::string failure() const;

 private:
  static constexpr uint64_t kEvents = 256;  // calls whose tickets are distinguished
  void check(ncclResult_t result) const;
  [[noreturn]] void fail_aborted() const;
  void begin_launch();
  void end_launch();

  Options options_;
  std::atomic<ncclComm_t> communicator_{nullptr};
  std::atomic<double> launching_since_{0};
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_ = {};
  uint64_t calls_ = 0;
};

}  // namespace tutti::comm
