// Floating-point numbers of 8 and 4 bits: exact conversions from and to f32.
//
//   E4M3   1-4-3, bias 7: largest 448, smallest 2^-9, one NaN per sign, no infinity
//   E5M2   1-5-2, bias 15: largest 57344, smallest 2^-16, NaN and infinity as IEEE 754
//   E2M1   1-2-1, bias 1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, nothing else
//   E8M0   scales: 2^(code - 127), code 255 is NaN; no sign, no zero
//
// E4M3 and E5M2: OCP 8-bit Floating Point Specification (OFP8) 1.0; E2M1 and E8M0: OCP
// Microscaling Formats (MX) 1.0. A code is in the low bits of a byte, the sign highest.
// Everything here is constexpr and plain C++, so that kernels of any device use the same text.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti {

enum class Specials : uint8_t { none, nan_only, ieee };

struct NarrowFloat {
  int exponent_bits;
  int mantissa_bits;
  Specials specials;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int largest_exponent() const {
    return (1 << exponent_bits) - (specials == Specials::ieee ? 2 : 1) - bias();
  }
  constexpr uint32_t sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
  // Of the largest finite value.
  constexpr uint32_t largest_code() const {
    if (specials == Specials::ieee) return infinity_code() - 1;
    return sign_bit() - (specials == Specials::nan_only ? 2 : 1);
  }
  // ieee only.
  constexpr uint32_t infinity_code() const { return ((1U << exponent_bits) - 1) << mantissa_bits; }
  // Not of E2M1, which has none.
  constexpr uint32_t nan_code() const {
    return specials == Specials::ieee ? infinity_code() | (1U << (mantissa_bits - 1))
                                      : sign_bit() - 1;
  }
};
inline constexpr NarrowFloat kE4m3 = {4, 3, Specials::nan_only};
inline constexpr NarrowFloat kE5m2 = {5, 2, Specials::ieee};
inline constexpr NarrowFloat kE2m1 = {2, 1, Specials::none};

constexpr float exact_power_of_two(int exponent) {  // -126 to 127
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// What becomes of a value that rounds beyond the largest, and of infinity. OFP8, table 3:
//   saturate  the largest value of its sign
//   special   infinity, in E4M3 NaN
// E2M1 always saturates.
enum class Overflow : uint8_t { saturate, special };

// To nearest, ties to even, subnormal values included. NaN stays NaN; of E2M1, which has none, it
// is the largest value: formats that use it say so in their scale (narrow_format.h).
template <NarrowFloat F>
constexpr uint8_t encode(float x, Overflow overflow) {
  constexpr int kDropped = 23 - F.mantissa_bits;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + 1 - F.bias()) << 23;
  // Adding it leaves a multiple of the smallest value in the low bits.
  constexpr float kRound = exact_power_of_two(23 + 1 - F.bias() - F.mantissa_bits);
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffU;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + kRound) -
                             std::bit_cast<uint32_t>(kRound);
  const uint32_t rounded =
      magnitude + ((1U << (kDropped - 1)) - 1) + ((magnitude >> kDropped) & 1U);
  const uint32_t normal =
      (rounded >> kDropped) - (static_cast<uint32_t>(127 - F.bias()) << F.mantissa_bits);
  uint32_t code = magnitude < kSmallestNormal ? subnormal : normal;
  const bool special = F.specials != Specials::none && overflow == Overflow::special;
  const uint32_t beyond = !special                       ? F.largest_code()
                          : F.specials == Specials::ieee ? F.infinity_code()
                                                         : F.nan_code();
  code = code > F.largest_code() ? beyond : code;
  if (F.specials != Specials::none) code = magnitude > 0x7f800000U ? F.nan_code() : code;
  return static_cast<uint8_t>(code | (bits >> 31) * F.sign_bit());
}

// To one of the two neighbours, to the farther one with a probability of the distance from the
// nearer: the mean is x. `random` has 32 even bits. Saturates; NaN and infinity as above.
template <NarrowFloat F>
constexpr uint8_t encode_stochastic(float x, uint32_t random) {
  constexpr int kDropped = 23 - F.mantissa_bits;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + 1 - F.bias()) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffU;
  uint32_t code = 0;
  if (magnitude < kSmallestNormal) {
    const float steps =
        std::bit_cast<float>(magnitude) * exact_power_of_two(F.bias() - 1 + F.mantissa_bits);
    const auto whole = static_cast<uint32_t>(steps);
    const float rest = steps - static_cast<float>(whole);
    code = whole + (static_cast<float>(random >> 8) * 0x1p-24F < rest ? 1U : 0U);
  } else {
    const uint32_t rounded = magnitude + (random >> (32 - kDropped));
    code = (rounded >> kDropped) - (static_cast<uint32_t>(127 - F.bias()) << F.mantissa_bits);
  }
  code = code > F.largest_code() ? F.largest_code() : code;
  if (F.specials != Specials::none) code = magnitude > 0x7f800000U ? F.nan_code() : code;
  return static_cast<uint8_t>(code | (bits >> 31) * F.sign_bit());
}

// Exact.
template <NarrowFloat F>
constexpr float decode(uint8_t code) {
  const uint32_t magnitude = code & (F.sign_bit() - 1);
  const uint32_t sign = (code & F.sign_bit()) != 0 ? 0x80000000U : 0;
  if (F.specials == Specials::ieee && magnitude >= F.infinity_code()) {
    const uint32_t rest = (magnitude - F.infinity_code()) << (23 - F.mantissa_bits);
    return std::bit_cast<float>(sign | 0x7f800000U | rest);
  }
  if (F.specials == Specials::nan_only && magnitude == F.nan_code()) {
    return std::bit_cast<float>(sign | 0x7fc00000U);
  }
  const uint32_t mantissa = magnitude & ((1U << F.mantissa_bits) - 1);
  if (magnitude >> F.mantissa_bits == 0) {
    const float value =
        static_cast<float>(mantissa) * exact_power_of_two(1 - F.bias() - F.mantissa_bits);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  const uint32_t shifted =
      (magnitude << (23 - F.mantissa_bits)) + (static_cast<uint32_t>(127 - F.bias()) << 23);
  return std::bit_cast<float>(sign | shifted);
}

template <NarrowFloat F>
inline constexpr float kLargest = decode<F>(static_cast<uint8_t>(F.largest_code()));

inline constexpr uint8_t kE8m0Nan = 255;

// 2^exponent, or the nearest that there is.
constexpr uint8_t encode_e8m0(int exponent) {
  return static_cast<uint8_t>(exponent < -127 ? 0 : exponent > 127 ? 254 : exponent + 127);
}
constexpr float decode_e8m0(uint8_t code) {
  if (code == kE8m0Nan) return std::bit_cast<float>(0x7fc00000U);
  return std::bit_cast<float>(code == 0 ? 0x00400000U : static_cast<uint32_t>(code) << 23);
}

}  // namespace tutti
