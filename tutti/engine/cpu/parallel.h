// Threads of the CPU backend. The only file that knows OpenMP: a build without it (thread
// sanitizer) runs serially.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace tutti::engine {

// Threads that the next parallel_ranges of this thread will use.
inline int thread_count() {
#ifdef _OPENMP
  return omp_in_parallel() != 0 ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

// Calls body(begin, end, thread) with disjoint contiguous ranges that cover [0, count), one range
// per thread, each a multiple of `grain` long (but the last). The split depends on count, grain
// and the number of threads only.
template <typename Body>
void parallel_ranges(int64_t count, int64_t grain, const Body& body) {
  if (count <= 0) return;
  const int64_t blocks = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(thread_count(), blocks));
  if (threads <= 1) {
    body(int64_t{0}, count, 0);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
    const int64_t begin = blocks * thread / threads * grain;
    const int64_t end = std::min(count, blocks * (thread + 1) / threads * grain);
    if (begin < end) body(begin, end, thread);
  }
#endif
}

// Calls body(index, thread) for every index in [0, count); threads take the next index as they get
// free. For work of uneven size whose results do not depend on who computes them.
template <typename Body>
void parallel_tasks(int64_t count, const Body& body) {
#ifdef _OPENMP
  if (count > 1 && thread_count() > 1) {
#pragma omp parallel
    {
      const int thread = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
      for (int64_t index = 0; index < count; ++index) body(index, thread);
    }
    return;
  }
#endif
  for (int64_t index = 0; index < count; ++index) body(index, 0);
}

}  // namespace tutti::engine
