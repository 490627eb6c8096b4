// A quick hash of two words, for tables in memory: nothing that is stored depends on it.
#pragma once

#include <cstdint>

namespace tutti::data {

inline uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a ^ 0x9E3779B97F4A7C15U} * (b ^ 0xD1B54A32D192ED03U);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace tutti::data
