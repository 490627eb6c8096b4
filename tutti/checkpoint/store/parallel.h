// A few threads for copies and checksums; work that is bound by memory, not by threads.
#pragma once

#include <cstdint>
#include <functional>

namespace tutti::checkpoint {

// Calls body(index) for every index in [0, count), on any thread, and returns when all are done;
// the first exception is thrown again by the caller.
using ParallelFor =
    std::function<void(int64_t count, const std::function<void(int64_t index)>& body)>;

// As many threads as cores, made for this call; the calling thread is one of them.
void parallel_threads(int64_t count, const std::function<void(int64_t index)>& body);

}  // namespace tutti::checkpoint
