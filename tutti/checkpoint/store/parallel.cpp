#include "tutti/checkpoint/store/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::checkpoint {

void parallel_threads(int64_t count, const std::function<void(int64_t index)>& body) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (int64_t index = next++; index < count; index = next++) body(index);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < std::min(cores, count); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace tutti::checkpoint
