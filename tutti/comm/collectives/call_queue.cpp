#include "tutti/comm/collectives/call_queue.h"

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::comm {

CallQueue::CallQueue() : entries_(kCapacity) {}

uint64_t CallQueue::submit(const Call& call) {
  std::unique_lock lock(mutex_);
  const uint64_t number = submitted_.load(std::memory_order_relaxed) + 1;
  Entry& entry = entries_[number % kCapacity];
  changed_.wait(lock, [&] { return entry.done || failed(); });
  if (failed()) throw Error(ErrorKind::peer, message_);
  entry.call = call;
  if (!call.send_counts.empty()) {
    entry.counts.assign(call.send_counts.begin(), call.send_counts.end());
    entry.counts.insert(entry.counts.end(), call.receive_counts.begin(), call.receive_counts.end());
    const std::span<const int64_t> counts(entry.counts);
    entry.call.send_counts = counts.first(call.send_counts.size());
    entry.call.receive_counts = counts.last(call.receive_counts.size());
  }
  entry.number = number;
  entry.done = entry.failed = false;
  submitted_.store(number, std::memory_order_release);
  changed_.notify_all();
  return number;
}

void CallQueue::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  const Entry& entry = entries_[number % kCapacity];
  // An entry that serves a later call served this one to its end.
  changed_.wait(lock, [&] { return entry.number != number || entry.done; });
  if (entry.number == number && entry.failed) throw Error(ErrorKind::peer, message_);
}

bool CallQueue::done(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const Entry& entry = entries_[number % kCapacity];
  return entry.number != number || entry.done;
}

void CallQueue::fail(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (failed()) return;
  message_ = message;
  failed_.store(true, std::memory_order_release);
  for (Entry& entry : entries_) {
    if (entry.done) continue;
    entry.done = entry.failed = true;
  }
  changed_.notify_all();
}

bool CallQueue::wait_submitted(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return submitted() > number || closed_ || failed(); });
  return submitted() > number && !failed();
}

void CallQueue::complete(uint64_t number) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[number % kCapacity];
  TUTTI_CHECK(entry.number == number, "call {} completes instead of {}", number, entry.number);
  entry.done = true;
  changed_.notify_all();
}

void CallQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace tutti::comm
