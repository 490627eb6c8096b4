// Philox4x32-10 for kernels, with the same words as base/rng.h.
#pragma once

#include <cstdint>

#include "tutti/engine/host_device.h"

namespace tutti::engine {

struct PhiloxWords {
  uint32_t at[4];
  // Word i, without dynamic indexing, which would spill the words to memory.
  TUTTI_HOST_DEVICE uint32_t word(int i) const {
    return i < 2 ? (i == 0 ? at[0] : at[1]) : (i == 2 ? at[2] : at[3]);
  }
};

TUTTI_HOST_DEVICE inline PhiloxWords philox_words(uint64_t key, uint64_t counter_low,
                                                  uint64_t counter_high) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  auto c0 = static_cast<uint32_t>(counter_low);
  auto c1 = static_cast<uint32_t>(counter_low >> 32);
  auto c2 = static_cast<uint32_t>(counter_high);
  auto c3 = static_cast<uint32_t>(counter_high >> 32);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

// Word of element (row, column); a Philox block holds four columns.
TUTTI_HOST_DEVICE inline uint32_t word_of(uint64_t key, int64_t row, int64_t column) {
  return philox_words(key, static_cast<uint64_t>(row), static_cast<uint64_t>(column / 4))
      .word(static_cast<int>(column % 4));
}

// Uniform in [0, 1) with 24 bits.
TUTTI_HOST_DEVICE inline float uniform_of(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

}  // namespace tutti::engine
