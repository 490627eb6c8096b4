// Rounding to bf16 without drift, as AdamW without f32 masters needs it (ops.h, AdamwArgs): one
// arithmetic for the host and for kernels.
#pragma once

#include <bit>
#include <cstdint>

#include "tutti/engine/host_device.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

inline constexpr int64_t kHalvesPerBlock = 8;  // of 16 bits, in a Philox block

// Bits of the bf16 below x in magnitude or, for as many of the 2^16 values of `half` as x lies
// above it in 2^-16 of their distance, of the one beyond: the mean over them is x. What bf16 has,
// zero and infinities stay; NaN stays one.
TUTTI_HOST_DEVICE inline uint16_t stochastic_bf16(float x, uint32_t half) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) {
    const bool nan = (bits & 0x007fffffU) != 0;
    return static_cast<uint16_t>((bits >> 16) | (nan ? 0x40U : 0U));
  }
  return static_cast<uint16_t>((bits + half) >> 16);
}

// Half `at` of a block with these words.
TUTTI_HOST_DEVICE inline uint32_t half_of(uint32_t word, int64_t at) {
  return at % 2 == 0 ? word & 0xffffU : word >> 16;
}

// The number in its whole tensor of element i of a segment.
TUTTI_HOST_DEVICE inline int64_t element_number(const AdamwSegment::Numbers& numbers, int64_t i) {
  const int64_t j = numbers.phase + i;
  return numbers.number + j / numbers.width * numbers.stride + j % numbers.width;
}

}  // namespace tutti::engine
