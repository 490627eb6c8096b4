// What the tests compare the formats of base/narrow_float.h with: values straight from the
// definitions, in f64, and conversion by looking for the nearest of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tutti/base/narrow_float.h"

namespace tutti::testing {

// The value of a code as the specifications define it, NaN and infinity included.
inline double defined_value(const NarrowFloat& f, uint32_t code) {
  const uint32_t fields = 1U << f.mantissa_bits;
  const double sign = code / (fields << f.exponent_bits) % 2 == 1 ? -1 : 1;
  const int exponent = static_cast<int>(code / fields % (1U << f.exponent_bits));
  const double mantissa = code % fields;
  const bool top = exponent == (1 << f.exponent_bits) - 1;
  if (f.specials == Specials::ieee && top) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (f.specials == Specials::nan_only && top && mantissa == fields - 1) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa / fields, 1 - f.bias());
  return sign * std::ldexp(1 + mantissa / fields, exponent - f.bias());
}

// The code of the nearest finite value; of two as near the even code. `x` is not NaN.
inline uint8_t nearest_code(const NarrowFloat& f, double x) {
  uint32_t best = 0;
  double distance = std::numeric_limits<double>::infinity();
  const double magnitude = std::min(std::abs(x), defined_value(f, f.largest_code()));
  for (uint32_t code = 0; code <= f.largest_code(); ++code) {
    const double here = std::abs(magnitude - defined_value(f, code));
    if (here < distance || (here == distance && code % 2 == 0)) {
      best = code;
      distance = here;
    }
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? f.sign_bit() : 0));
}

}  // namespace tutti::testing
