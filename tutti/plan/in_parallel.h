// Independent pieces of work on several threads. Which thread does which piece is left to chance,
// so a piece may only write what belongs to its number: results are then the same to the bit
// whatever the number of threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tutti::plan {

// Calls `work` with 0 to count - 1, each once, the lower ones first, on `threads` threads (0: as
// many as this process has cores) and returns when all are done. The calling thread meanwhile calls
// `done` with the number of finished pieces, after each and at least ten times a second. When a
// piece or `done` throws, no further piece starts, and the exception of the lowest piece that
// failed, else that of `done`, is thrown.
void in_parallel(size_t count, int threads, const std::function<void(size_t piece)>& work,
                 const std::function<void(size_t finished)>& done);

}  // namespace tutti::plan
