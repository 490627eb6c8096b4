// Unbiased rounding to bf16, which AdamW needs without f32 master weights (update_ops.h,
// AdamwArgs): one implementation for the host and for kernels.
#pragma once

#include <bit>
#include <cstdint>

#include "tutti/engine/host_device.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

inline constexpr int64_t kHalvesPerBlock = 8;  // of 16 bits, in a Philox block

// Bits of one of the two bf16 neighbours of x. Of the 2^16 values of `half`, as many select the
// neighbour of larger magnitude as x exceeds the smaller one, in units of 2^-16 of their distance,
// so that the mean over all values is x. Values of bf16, zero and infinities are preserved; NaN
// stays NaN.
TUTTI_HOST_DEVICE inline uint16_t stochastic_bf16(float x, uint32_t half) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) {
    const bool nan = (bits & 0x007fffffU) != 0;
    return static_cast<uint16_t>((bits >> 16) | (nan ? 0x40U : 0U));
  }
  return static_cast<uint16_t>((bits + half) >> 16);
}

// Half number `at` of a Philox block, from the word that holds it.
TUTTI_HOST_DEVICE inline uint32_t half_of(uint32_t word, int64_t at) {
  return at % 2 == 0 ? word & 0xffffU : word >> 16;
}

// Index in the whole tensor of element i of a segment.
TUTTI_HOST_DEVICE inline int64_t element_number(const AdamwSegment::Numbers& numbers, int64_t i) {
  const int64_t j = numbers.phase + i;
  return numbers.number + j / numbers.width * numbers.stride + j % numbers.width;
}

}  // namespace tutti::engine
