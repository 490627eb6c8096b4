// Waiting for another thread, or for a process that shares the memory.
//
// A waiting thread spins for a short time, because being woken takes tens of microseconds, then it
// sleeps. Spinning pays only while every thread that is waited for has a core. Therefore threads
// that wait look every few milliseconds at how long the system kept them from running; if that was
// more than a few percent of the time, no thread of the process spins for a while.
//
// OMP_WAIT_POLICY=passive: no thread spins. active: threads spin for long, even if another process
// needs the core.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti {

// May lie in memory that processes share; zero bytes are a valid doorbell. One rings after one
// changed what others may wait for. A waiter reads rings(), then looks at what it waits for, and
// waits for more rings if that has not come:
//
//   while (true) {
//     const uint32_t seen = bell.rings();
//     if (come()) break;
//     bell.wait(seen);
//   }
class Doorbell {
 public:
  uint32_t rings() const { return rings_.load(); }
  void ring();  // wakes all that wait; a system call only if one of them sleeps

  // Returns when rings() is no longer `seen`, or after the timeout: false. `spin`: false to sleep
  // at once.
  bool wait(uint32_t seen, double timeout_seconds, bool spin = true);
  void wait(uint32_t seen);  // without a timeout

 private:
  bool sleep(uint32_t seen, double timeout_seconds);  // negative: without a timeout

  std::atomic<uint32_t> rings_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace tutti
