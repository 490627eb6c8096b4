#include "tutti/plan/in_parallel.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/base/machine.h"

namespace tutti::plan {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);

// State shared by the threads.
struct Pieces {
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0;
  size_t finished = 0;
  size_t working = 0;  // threads
  size_t failed = 0;   // the lowest failed piece, if there is an error
  std::exception_ptr error;
  bool stops = false;

  void work_on(size_t count, const std::function<void(size_t)>& work) {
    std::unique_lock lock(mutex);
    while (!stops && next < count) {
      const size_t piece = next++;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        work(piece);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      ++finished;
      if (thrown && (!error || piece < failed)) {
        error = thrown;
        failed = piece;
      }
      stops = stops || thrown;
      changed.notify_one();
    }
    --working;
    changed.notify_one();
  }
};

}  // namespace

void in_parallel(size_t count, int threads, const std::function<void(size_t)>& work,
                 const std::function<void(size_t)>& done) {
  const size_t most = static_cast<size_t>(threads > 0 ? threads : describe_machine().cores);
  Pieces pieces;
  pieces.working = std::clamp<size_t>(most, 1, std::max<size_t>(1, count));
  std::vector<std::thread> team;
  for (size_t i = pieces.working; i-- > 0;) {
    team.emplace_back([&] { pieces.work_on(count, work); });
  }
  std::exception_ptr refused;  // thrown by `done`
  {
    std::unique_lock lock(pieces.mutex);
    for (bool ends = false; !ends;) {
      if (pieces.working > 0) pieces.changed.wait_for(lock, kPatience);
      ends = pieces.working == 0;
      const size_t finished = pieces.finished;
      if (refused) continue;
      lock.unlock();
      try {
        done(finished);
      } catch (...) {
        refused = std::current_exception();
      }
      lock.lock();
      pieces.stops = pieces.stops || refused;
    }
  }
  for (std::thread& thread : team) thread.join();
  if (pieces.error) std::rethrow_exception(pieces.error);
  if (refused) std::rethrow_exception(refused);
}

}  // namespace tutti::plan
