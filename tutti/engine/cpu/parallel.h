// Splits the work of the CPU backend across the threads of a team.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/engine/cpu/team.h"

namespace tutti::engine {

// Number of threads that the next parallel_ranges of this thread uses.
inline int thread_count() { return team_threads(); }

// Calls body() on `threads` threads; team_member() is the index of each.
template <typename Body>
void on_team(int threads, const Body& body) {
  run_team(
      threads, [](void* context) { (*static_cast<const Body*>(context))(); },
      const_cast<Body*>(&body));
}

// Calls body(begin, end, thread) with disjoint contiguous ranges that cover [0, count), one range
// per thread. Lengths are multiples of `grain`, except the last. The split depends only on count,
// grain and the number of threads.
template <typename Body>
void parallel_ranges(int64_t count, int64_t grain, const Body& body) {
  if (count <= 0) return;
  const int64_t blocks = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(thread_count(), blocks));
  if (threads <= 1) {
    body(int64_t{0}, count, 0);
    return;
  }
  on_team(threads, [&] {
    const int thread = team_member();
    const int64_t begin = blocks * thread / threads * grain;
    const int64_t end = std::min(count, blocks * (thread + 1) / threads * grain);
    if (begin < end) body(begin, end, thread);
  });
}

// Calls body(index, thread) for every index in [0, count), scheduled dynamically: an idle thread
// takes the next index. For tasks of uneven size whose results do not depend on the thread.
template <typename Body>
void parallel_tasks(int64_t count, const Body& body) {
  if (count > 1 && thread_count() > 1) {
    on_team(thread_count(), [&] {
      const int thread = team_member();
      for (int64_t index = team_next(); index < count; index = team_next()) body(index, thread);
    });
    return;
  }
  for (int64_t index = 0; index < count; ++index) body(index, 0);
}

}  // namespace tutti::engine
