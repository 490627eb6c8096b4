// Element-wise reduction of several arrays into one or more copies of the result: the arithmetic of
// collectives (comm/). Runs on the calling thread.
#pragma once

#include <cstdint>
#include <span>

#include "tutti/base/dtype.h"
#include "tutti/engine/reduce.h"

namespace tutti::engine {

// destinations[d][i] = sources[0][i] + sources[1][i] + ..., or their maximum, for i in [0, count).
// Types: f32, bf16 (accumulated in f32, rounded once), i32, i64. Always in the order of `sources`,
// so the bits do not depend on the rank, count or instruction set. Sums of integers wrap around;
// the maximum is NaN if any source is. A destination may be a source; other overlap is not allowed.
// There must be at least one source.
void reduce_elements(Reduce reduce, DType dtype, std::span<const void* const> sources,
                     std::span<void* const> destinations, int64_t count);

}  // namespace tutti::engine
