#include "tutti/base/rng.h"

#include <cmath>
#include <string>

#include "tutti/base/check.h"
#include "tutti/base/hash.h"

namespace tutti {

uint64_t stream_key(uint64_t seed, std::string_view purpose, std::string_view name) {
  std::string text = std::to_string(seed);
  text += '\n';
  text += purpose;
  text += '\n';
  text += name;
  return hash_text(text);
}

uint64_t random_u64(uint64_t key, uint64_t index) {
  const PhiloxBlock words = philox(key, index);
  return static_cast<uint64_t>(words[1]) << 32 | words[0];
}

double random_uniform(uint64_t key, uint64_t index) {
  return static_cast<double>(random_u64(key, index) >> 11) * 0x1p-53;
}

void fill_normal(float* out, int64_t count, uint64_t key, uint64_t first, float mean, float std) {
  // Block b of the stream yields normals 4b .. 4b+3.
  const uint64_t end = first + static_cast<uint64_t>(count);
  for (uint64_t block = first / 4; block * 4 < end; ++block) {
    const PhiloxBlock words = philox(key, block);
    for (unsigned pair = 0; pair < 2; ++pair) {
      const double u = (static_cast<double>(words[2 * pair]) + 0.5) * 0x1p-32;
      const double v = static_cast<double>(words[2 * pair + 1]) * 0x1p-32;
      const double radius = std::sqrt(-2.0 * std::log(u));
      const double angle = 2.0 * M_PI * v;
      const double z[2] = {radius * std::cos(angle), radius * std::sin(angle)};
      for (unsigned i = 0; i < 2; ++i) {
        const uint64_t index = block * 4 + 2 * pair + i;
        if (index >= first && index < end) {
          out[index - first] = mean + std * static_cast<float>(z[i]);
        }
      }
    }
  }
}

void fill_uniform(float* out, int64_t count, uint64_t key, uint64_t first, float bound) {
  const uint64_t end = first + static_cast<uint64_t>(count);
  for (uint64_t block = first / 4; block * 4 < end; ++block) {
    const PhiloxBlock words = philox(key, block);
    for (unsigned i = 0; i < 4; ++i) {
      const uint64_t index = block * 4 + i;
      if (index >= first && index < end) {
        out[index - first] = bound * (2 * uniform01(words[i]) - 1);
      }
    }
  }
}

uint64_t permute_index(uint64_t index, uint64_t n, uint64_t key) {
  TUTTI_CHECK(index < n, "permute_index: {} is outside 0..{}", index, n);
  if (n == 1) return 0;
  unsigned half_bits = 1;
  while (half_bits < 32 && (uint64_t{1} << (2 * half_bits)) < n) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  // The Feistel network permutes [0, 4^half_bits), fewer than 4n values; walking the cycle until
  // it returns to [0, n) restricts it to a permutation of [0, n).
  do {
    uint64_t left = index >> half_bits;
    uint64_t right = index & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t mixed = left ^ (philox(key, right, round)[0] & mask);
      left = right;
      right = mixed;
    }
    index = left << half_bits | right;
  } while (index >= n);
  return index;
}

}  // namespace tutti
