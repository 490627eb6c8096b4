// A thread that copies in order. The CPU's stream is synchronous, so the queue never waits for it,
// and where the stream has to wait, its caller does.
#include "tutti/engine/copy_queue.h"

#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/base/check.h"

namespace tutti::engine {
namespace {

class CpuCopyQueue final : public CopyQueue {
 public:
  CpuCopyQueue() : tasks_(kFirstTasks), worker_([this] { work(); }) {}

  ~CpuCopyQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }
  CpuCopyQueue(const CpuCopyQueue&) = delete;
  CpuCopyQueue& operator=(const CpuCopyQueue&) = delete;

  void copy(void* to, const void* from, int64_t bytes) override {
    enqueue({.to = to, .from = from, .bytes = bytes});
  }

  void mark(int point) override {
    const std::lock_guard lock(mutex_);
    points_.at(static_cast<size_t>(point)) = enqueued_;
    marked_.at(static_cast<size_t>(point)) = true;
  }

  void after_stream() override {}

  void after(const CopyQueue& other, int point) override {
    const auto& first = static_cast<const CpuCopyQueue&>(other);
    enqueue({.first = &first, .count = first.tasks_before(point)});
  }

  void stream_after(int point) override { wait_for(tasks_before(point)); }

 private:
  // A copy, or a wait until the queue `first` has completed `count` tasks.
  struct Task {
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
    const CpuCopyQueue* first = nullptr;
    uint64_t count = 0;
  };
  static constexpr size_t kFirstTasks = 1024;

  uint64_t tasks_before(int point) const {
    const std::lock_guard lock(mutex_);
    TUTTI_CHECK(marked_.at(static_cast<size_t>(point)), "point {} was never marked", point);
    return points_.at(static_cast<size_t>(point));
  }

  void wait_for(uint64_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count; });
  }

  void enqueue(const Task& task) {
    {
      const std::lock_guard lock(mutex_);
      if (enqueued_ - done_ == tasks_.size()) grow();
      tasks_[enqueued_ % tasks_.size()] = task;
      ++enqueued_;
    }
    changed_.notify_all();
  }

  // Tasks keep their numbers; their slots are the numbers modulo the new size.
  void grow() {
    std::vector<Task> larger(2 * tasks_.size());
    for (uint64_t i = done_; i < enqueued_; ++i) {
      larger[i % larger.size()] = tasks_[i % tasks_.size()];
    }
    tasks_ = std::move(larger);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || done_ < enqueued_; });
      if (done_ == enqueued_) return;
      const Task task = tasks_[done_ % tasks_.size()];
      lock.unlock();
      if (task.first != nullptr) {
        task.first->wait_for(task.count);
      } else if (task.bytes > 0) {
        std::memcpy(task.to, task.from, static_cast<size_t>(task.bytes));
      }
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  mutable std::mutex mutex_;  // guards the members below
  mutable std::condition_variable changed_;
  std::vector<Task> tasks_;  // ring buffer: task i is at i modulo the size
  uint64_t enqueued_ = 0;
  uint64_t done_ = 0;
  std::array<uint64_t, kPoints> points_ = {};  // tasks before the last mark
  std::array<bool, kPoints> marked_ = {};
  bool stop_ = false;
  std::thread worker_;  // last: it uses the members above
};

}  // namespace

std::unique_ptr<CopyQueue> make_cpu_copy_queue() { return std::make_unique<CpuCopyQueue>(); }

}  // namespace tutti::engine
