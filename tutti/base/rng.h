// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011). A number is a pure function of (key, counter), so initialisation and
// dropout do not depend on rank, thread or order, and resume needs no saved generator state.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti {

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock c = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                   static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

// The key of a named random stream, such as ("init", "blocks.3.attn.qkv.weight", seed).
uint64_t stream_key(uint64_t seed, std::string_view purpose, std::string_view name = {});

// Uniform in [0, 1) with 24 bits from one 32-bit word.
inline float uniform01(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

// The `index`-th 64-bit integer, uniform double in [0,1), and standard normal of a stream.
uint64_t random_u64(uint64_t key, uint64_t index);
double random_uniform(uint64_t key, uint64_t index);

// out[i] = mean + std * z(first + i): standard normals by Box-Muller from Philox words. The value
// of an element depends on its global index only, so any shard can be filled on its own.
void fill_normal(float* out, int64_t count, uint64_t key, uint64_t first, float mean, float std);

// out[i] = uniform in [-bound, bound), word (first + i) of the stream with 24 bits: likewise of the
// global index only.
void fill_uniform(float* out, int64_t count, uint64_t key, uint64_t first, float bound);

// A bijection of [0, n): the position of `index` in a pseudorandom order given by `key`.
// Feistel network with cycle walking; O(1) memory, so sample order needs no stored permutation.
uint64_t permute_index(uint64_t index, uint64_t n, uint64_t key);

}  // namespace tutti
