// The OpenMP runtime functions that oneDNN, compiled with GCC, calls, implemented on the teams of
// team.h. The linker exports them from the program because libdnnl needs them, and they take
// precedence over those of libgomp, which spins for ten milliseconds at the end of each region even
// if other threads need the core.
//
// Only parallel regions, barriers and queries are implemented. Work-sharing constructs (loops that
// the runtime schedules, sections, single, tasks) would find no team in libgomp, and every thread
// would execute all of the work; they abort instead.
#include "tutti/base/check.h"
#include "tutti/engine/cpu/team.h"

namespace tutti::engine {

// team.cpp calls this, so that the linker includes this file in every program with teams.
void serve_openmp() {}

}  // namespace tutti::engine

#ifdef _OPENMP

#define TUTTI_EXPORT __attribute__((visibility("default"), used))
// NOLINTBEGIN(readability-identifier-naming)
#define TUTTI_UNSUPPORTED(name)                                                      \
  TUTTI_EXPORT void name() {                                                         \
    TUTTI_CHECK(false, "OpenMP: " #name " is not supported in programs with Tutti"); \
  }

extern "C" {

TUTTI_EXPORT void GOMP_parallel(void (*body)(void*), void* data, unsigned threads,
                                unsigned /*flags*/) {
  tutti::engine::run_team(static_cast<int>(threads), body, data);
}
TUTTI_EXPORT void GOMP_barrier() { tutti::engine::team_barrier(); }

TUTTI_EXPORT int omp_get_max_threads() { return tutti::engine::team_threads(); }
TUTTI_EXPORT int omp_get_num_threads() { return tutti::engine::team_size(); }
TUTTI_EXPORT int omp_get_thread_num() { return tutti::engine::team_member(); }
TUTTI_EXPORT int omp_in_parallel() { return tutti::engine::in_team() ? 1 : 0; }
TUTTI_EXPORT void omp_set_num_threads(int threads) { tutti::engine::set_team_threads(threads); }

TUTTI_UNSUPPORTED(GOMP_single_start)
TUTTI_UNSUPPORTED(GOMP_sections_start)
TUTTI_UNSUPPORTED(GOMP_parallel_sections)
TUTTI_UNSUPPORTED(GOMP_task)
TUTTI_UNSUPPORTED(GOMP_taskloop)
TUTTI_UNSUPPORTED(GOMP_loop_dynamic_start)
TUTTI_UNSUPPORTED(GOMP_loop_guided_start)
TUTTI_UNSUPPORTED(GOMP_loop_runtime_start)
TUTTI_UNSUPPORTED(GOMP_loop_nonmonotonic_dynamic_start)
TUTTI_UNSUPPORTED(GOMP_loop_nonmonotonic_guided_start)
TUTTI_UNSUPPORTED(GOMP_loop_nonmonotonic_runtime_start)
TUTTI_UNSUPPORTED(GOMP_loop_maybe_nonmonotonic_runtime_start)
TUTTI_UNSUPPORTED(GOMP_loop_start)
TUTTI_UNSUPPORTED(GOMP_parallel_loop_dynamic)
TUTTI_UNSUPPORTED(GOMP_parallel_loop_guided)
TUTTI_UNSUPPORTED(GOMP_parallel_loop_runtime)
TUTTI_UNSUPPORTED(GOMP_parallel_loop_nonmonotonic_dynamic)
TUTTI_UNSUPPORTED(GOMP_parallel_loop_nonmonotonic_guided)
TUTTI_UNSUPPORTED(GOMP_parallel_loop_nonmonotonic_runtime)
TUTTI_UNSUPPORTED(GOMP_parallel_loop_maybe_nonmonotonic_runtime)
TUTTI_UNSUPPORTED(GOMP_parallel_reductions)

}  // extern "C"
// NOLINTEND(readability-identifier-naming)

#endif
