// Runs independent pieces of work on several threads. Any thread may run any piece, so a piece may
// only write results of its own number: results are then bitwise equal for any number of threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tutti::plan {

// Calls `work` with 0 to count - 1, each once, the lower ones first, on `threads` threads (0: as
// many as this process has cores) and returns when all are done. Meanwhile the calling thread calls
// `done` with the number of finished pieces, after each and at least ten times a second. If a piece
// or `done` throws, no further piece starts, and the exception of the lowest failed piece, or else
// that of `done`, is rethrown.
void in_parallel(size_t count, int threads, const std::function<void(size_t piece)>& work,
                 const std::function<void(size_t finished)>& done);

}  // namespace tutti::plan
