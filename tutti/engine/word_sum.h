// The checksum that an update computes as it runs (AdamwSums in update_ops.h), for recomputing it.
#pragma once

#include <cstdint>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Sum modulo 2^32 of the words (u32 or u16) of x, f32 or bf16 in host memory; 0 if empty. Runs on
// the threads of the calling thread's stream; the result does not depend on their number.
uint32_t word_sum(const Vector& x);

}  // namespace tutti::engine
