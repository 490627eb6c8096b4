// The threads of the CPU backend. Every thread that computes has a team of its own: itself and
// helpers, which are started when they are first needed, kept, and end with it. oneDNN runs on the
// same teams (openmp.cpp).
//
// As OMP_NUM_THREADS says, else the cores that the process may use when it starts, is how many
// threads a team has (set_team_threads). Within a region a further region runs on one thread.
// Helpers run on the cores that their owner may use when they start.
#pragma once

#include <cstdint>

namespace tutti::engine {

int team_threads();                  // of the next region of this thread; 1 within a region
void set_team_threads(int threads);  // for the regions of this thread; at least 1
int default_team_threads();          // of a thread that has set nothing

bool in_team();     // within a region
int team_member();  // which thread of the region this is; 0 outside
int team_size();    // threads of the region; 1 outside

// Calls body(context) once on each of `threads` threads (0: team_threads()), of which this one is
// number 0, and returns when all have returned. What the threads wrote is then seen here. The body
// must not throw. Throws std::system_error if the system gives no more threads.
void run_team(int threads, void (*body)(void*), void* context);

// Waits until all threads of the region have come here.
void team_barrier();

// The next of the numbers from 0 that no thread of the region has been given; one count per region.
int64_t team_next();

}  // namespace tutti::engine
