// Checksums that an update computes in passing (AdamwSums in ops.h) and anybody can compute again.
#pragma once

#include <cstdint>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Of x, f32 or bf16 in memory that the host reads, the words (u32 or u16) added up modulo 2^32; 0
// of an empty one. In all threads of the calling one's stream; their number does not matter.
uint32_t word_sum(const Vector& x);

}  // namespace tutti::engine
