// Queue of calls from the calling thread to the communication thread: a ring of fixed size,
// numbered from 1. Calls complete in any order; when the queue fails, all pending calls complete.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/comm/collectives/call.h"

namespace tutti::comm {

class CallQueue {
 public:
  static constexpr uint64_t kCapacity = 256;

  CallQueue();

  // Calling thread. Copies the call and its counts; blocks while kCapacity calls are on their way.
  // Throws peer when the queue has failed.
  uint64_t submit(const Call& call);
  // Blocks until call `number` is done; throws peer when it failed.
  void wait(uint64_t number);

  // Any thread.
  bool done(uint64_t number) const;
  // Ends every call that is not done, and later ones, with this message. The first failure counts.
  void fail(const std::string& message);
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // Carrying thread. Calls below submitted() may be read from at() until they are complete.
  uint64_t submitted() const { return submitted_.load(std::memory_order_acquire); }
  // Blocks until there is a call above `number`; false when the queue was closed or has failed.
  bool wait_submitted(uint64_t number);
  const Call& at(uint64_t number) const { return entries_[number % kCapacity].call; }
  void complete(uint64_t number);
  void close();  // wait_submitted returns false once nothing is left

 private:
  struct Entry {
    Call call;
    std::vector<int64_t> counts;  // what call.send_counts and call.receive_counts refer to
    uint64_t number = 0;
    bool done = true;
    bool failed = false;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  std::atomic<uint64_t> submitted_{0};
  std::atomic<bool> failed_{false};
  bool closed_ = false;
  std::string message_;
};

}  // namespace tutti::comm
