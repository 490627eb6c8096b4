#include "tutti/checkpoint/store/elements.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::checkpoint {
namespace {

// One struct per stored type: its bits, and both ways to f32.
struct F32 {
  using Bits = uint32_t;
  static float widen(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits narrow(float value) { return std::bit_cast<Bits>(value); }
  static bool finite(Bits bits) { return (bits & 0x7f800000U) != 0x7f800000U; }
};
struct Bf16 {
  using Bits = uint16_t;
  static float widen(Bits bits) { return to_f32(bf16{bits}); }
  static Bits narrow(float value) { return to_bf16(value).bits; }
  static bool finite(Bits bits) { return (bits & 0x7f80U) != 0x7f80U; }
};
struct F16 {
  using Bits = uint16_t;
  static float widen(Bits bits) { return f16_bits_to_f32(bits); }
  static Bits narrow(float value) { return to_f16_bits(value); }
  static bool finite(Bits bits) { return (bits & 0x7c00U) != 0x7c00U; }
};

template <typename Type>
typename Type::Bits load(const void* from, int64_t i) {
  typename Type::Bits bits;  // files don't promise alignment
  std::memcpy(&bits, static_cast<const char*>(from) + i * static_cast<int64_t>(sizeof bits),
              sizeof bits);
  return bits;
}

template <typename Type>
int64_t first_nonfinite(const void* from, int64_t count) {
  bool all = true;  // without a branch per element, so that it vectorises
  for (int64_t i = 0; i < count; ++i) all &= Type::finite(load<Type>(from, i));
  if (all) return -1;
  int64_t i = 0;
  while (Type::finite(load<Type>(from, i))) ++i;
  return i;
}

template <typename From, typename To>
void convert(const void* from, void* to, int64_t count) {
  auto* out = static_cast<typename To::Bits*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = To::narrow(From::widen(load<From>(from, i)));
}

template <typename Visit>
auto with_type(DType type, const Visit& visit) {
  switch (type) {
    case DType::f32: return visit(F32{});
    case DType::bf16: return visit(Bf16{});
    case DType::f16: return visit(F16{});
    default: TUTTI_CHECK(false, "{} is not a parameter type", dtype_name(type));
  }
}

void check_finite(DType type, const void* data, int64_t count, int64_t& at) {
  at = with_type(type, [&](auto kind) { return first_nonfinite<decltype(kind)>(data, count); });
}

}  // namespace

float f16_bits_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fU;
  const uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24F;  // zero or subnormal: exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(small));
}

uint16_t to_f16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);   // NaN
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // 65520 and more
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the step is 2^-24: adding 0.5 puts it at the last bit of an f32, rounded by the
    // addition itself.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude + 0xfffU + (magnitude >> 13 & 1U);
  return static_cast<uint16_t>(sign | (rounded - (112U << 23)) >> 13);
}

bool is_parameter_type(DType type) {
  return type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

void convert_elements(DType from_type, const void* from, DType to_type, void* to, int64_t count,
                      std::string_view name, int64_t first_index) {
  int64_t at = -1;
  check_finite(from_type, from, count, at);
  if (at >= 0) {
    fail(ErrorKind::corrupt, "{}: element {} is not a finite number", name, first_index + at);
  }
  if (from_type == to_type) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count * dtype_bytes(to_type)));
    return;
  }
  with_type(from_type, [&](auto source) {
    with_type(to_type,
              [&](auto target) { convert<decltype(source), decltype(target)>(from, to, count); });
  });
  check_finite(to_type, to, count, at);
  if (at >= 0) {
    fail(ErrorKind::usage, "{}: element {} is too large for {}; use f32 or bf16", name,
         first_index + at, dtype_name(to_type));
  }
}

}  // namespace tutti::checkpoint
