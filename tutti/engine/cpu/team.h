// The thread pools of the CPU backend. Every thread that computes has its own team: itself and
// helper threads, which start on first use, are reused, and end with their owner. oneDNN runs on
// the same teams (openmp.cpp).
//
// The default team size is OMP_NUM_THREADS, else the number of cores in the affinity mask of the
// process at its start; set_team_threads changes it. A nested region runs on one thread. Helpers
// inherit the affinity mask that their owner has when they start.
#pragma once

#include <cstdint>

namespace tutti::engine {

int team_threads();                  // of the next region of this thread; 1 within a region
void set_team_threads(int threads);  // for the regions of this thread; at least 1
int default_team_threads();          // without set_team_threads

bool in_team();     // within a region
int team_member();  // index of this thread in the region; 0 outside
int team_size();    // threads of the region; 1 outside

// Calls body(context) once on each of `threads` threads (0: team_threads()), of which this one is
// number 0, and returns when all have returned. Their writes are then visible to this thread. The
// body must not throw. Throws std::system_error if the system cannot start more threads.
void run_team(int threads, void (*body)(void*), void* context);

// Waits until all threads of the region have arrived.
void team_barrier();

// The next value of the region's task counter, which starts at 0; each value is returned once.
int64_t team_next();

}  // namespace tutti::engine
