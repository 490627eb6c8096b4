// Element-wise reduction of several arrays into one or more copies of the result: what collectives
// compute (comm/). Runs on the calling thread.
#pragma once

#include <cstdint>
#include <span>

#include "tutti/base/dtype.h"
#include "tutti/engine/reduce.h"

namespace tutti::engine {

// destinations[d][i] = sources[0][i] + sources[1][i] + ..., or their maximum, for i in [0, count).
// Types: f32, bf16 (accumulated in f32, rounded once), i32, i64. Always in the order of `sources`,
// so the bits do not depend on who computes them, on count or on instruction set. Sums of integers
// wrap around; the maximum is NaN where any source is. A destination may be a source; otherwise
// ranges do not overlap. There is at least one source.
void reduce_elements(Reduce reduce, DType dtype, std::span<const void* const> sources,
                     std::span<void* const> destinations, int64_t count);

}  // namespace tutti::engine
