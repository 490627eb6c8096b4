// Many threads make blocks, one consumes them in order.
//
// ordered_work(count, threads, budget, work, consume): `work(task, emit)` runs for task 0 ..
// count - 1, started in this order, on `threads` threads; it calls emit(block, bytes) any number
// of times. `consume(block)` runs on the calling thread with the blocks of task 0, then of task 1
// and so on, each in emission order: what it sees does not depend on the number of threads.
//
// Blocks that wait hold at most about `budget` bytes, plus one block per thread: emit waits. The
// task whose turn it is may always add a block when none of its own waits, so nothing deadlocks.
// The first error, in task order, of work, or one of consume, ends everything and is thrown here.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::data {

template <typename Block>
class OrderedWork {
 public:
  using Emit = std::function<void(Block, int64_t bytes)>;
  using Work = std::function<void(int64_t task, const Emit& emit)>;
  using Consume = std::function<void(Block&)>;

  OrderedWork(int64_t count, int64_t budget, Work work)
      : count_(count), budget_(budget), work_(std::move(work)) {}
  ~OrderedWork() { join(); }
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  void run(int threads, const Consume& consume) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { loop(); });
    }
    while (head_ < count_) {
      std::pair<Block, int64_t> item;
      if (take(item)) {
        consume(item.first);
        const std::lock_guard lock(mutex_);
        waiting_bytes_ -= item.second;
        workers_.notify_all();
      }
    }
    join();
  }

 private:
  struct Task {
    std::deque<std::pair<Block, int64_t>> blocks;
    bool done = false;
    std::exception_ptr error;
  };
  struct Cancelled {};

  // The next block in order; false when the task at the head has ended, which moves the head.
  bool take(std::pair<Block, int64_t>& item) {
    std::unique_lock lock(mutex_);
    Task& task = tasks_[head_];
    consumer_.wait(lock, [&task] { return task.done || !task.blocks.empty(); });
    if (!task.blocks.empty()) {
      item = std::move(task.blocks.front());
      task.blocks.pop_front();
      return true;
    }
    if (task.error) std::rethrow_exception(task.error);
    tasks_.erase(head_);
    ++head_;
    workers_.notify_all();
    return false;
  }

  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      workers_.wait(lock, [this] {
        return cancelled_ || next_ == count_ || next_ == head_ || waiting_bytes_ < budget_;
      });
      if (cancelled_ || next_ == count_) return;
      const int64_t index = next_++;
      Task& task = tasks_[index];
      lock.unlock();
      std::exception_ptr error;
      try {
        work_(index,
              [&](Block block, int64_t bytes) { emit(index, task, std::move(block), bytes); });
      } catch (const Cancelled&) {
        return;
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      task.error = error;
      task.done = true;
      consumer_.notify_all();
    }
  }

  void emit(int64_t index, Task& task, Block block, int64_t bytes) {
    std::unique_lock lock(mutex_);
    workers_.wait(lock, [&] {
      return cancelled_ || waiting_bytes_ < budget_ || (index == head_ && task.blocks.empty());
    });
    if (cancelled_) throw Cancelled{};
    waiting_bytes_ += bytes;
    task.blocks.emplace_back(std::move(block), bytes);
    consumer_.notify_all();
  }

  void join() {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    workers_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const int64_t count_, budget_;
  const Work work_;
  std::mutex mutex_;
  std::condition_variable workers_, consumer_;
  std::map<int64_t, Task> tasks_;  // started or awaited; references stay valid
  int64_t next_ = 0;               // the first task not started
  int64_t head_ = 0;               // the task whose blocks are consumed now
  int64_t waiting_bytes_ = 0;
  bool cancelled_ = false;
  std::vector<std::thread> threads_;
};

template <typename Block>
void ordered_work(int64_t count, int threads, int64_t budget,
                  const typename OrderedWork<Block>::Work& work,
                  const typename OrderedWork<Block>::Consume& consume) {
  OrderedWork<Block>(count, budget, work).run(threads, consume);
}

}  // namespace tutti::data
