// Errors for invalid values of a recipe: usage that names the key, the value and what is accepted.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "tutti/base/error.h"

namespace tutti::spec {

template <typename... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::usage, format, std::forward<Args>(args)...);
}

inline void check_range(const char* key, double value, double least, double most) {
  if (!(value >= least && value <= most)) {
    if (std::isinf(most)) reject("{}: {} is out of range; accepted: {} or more", key, value, least);
    reject("{}: {} is out of range; accepted: {} to {}", key, value, least, most);
  }
}

inline void check_at_least(const char* key, int64_t value, int64_t least) {
  if (value < least) reject("{}: {} is out of range; accepted: {} or more", key, value, least);
}

// The multiple of `unit` nearest to `value`, at least one unit.
inline int64_t nearest_multiple(int64_t value, int64_t unit) {
  return std::max<int64_t>(1, (value + unit / 2) / unit) * unit;
}

}  // namespace tutti::spec
