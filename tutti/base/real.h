// Counts as doubles, for rates and products that may exceed 64 bits.
#pragma once

#include <cstdint>

namespace tutti {

// The nearest double; exact up to 2^53.
constexpr double real(int64_t value) { return static_cast<double>(value); }

}  // namespace tutti
