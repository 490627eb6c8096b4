// Element types of tensors and files. Shared by spec (which describes) and engine (which
// computes), hence in base.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace tutti {

enum class DType : uint8_t { f32, bf16, f16, f64, u8, i8, u16, i16, i32, i64, u64 };

int64_t dtype_bytes(DType type);
const char* dtype_name(DType type);        // "f32", "bf16", ...
DType parse_dtype(std::string_view name);  // throws usage

// A bfloat16 value as stored: the upper half of an IEEE f32.
struct bf16 {
  uint16_t bits;
};

inline float to_f32(bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// Round to nearest even; NaN stays NaN (quiet).
inline bf16 to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<uint16_t>((bits >> 16) | 0x40U)};
  bits += 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<uint16_t>(bits >> 16)};
}

}  // namespace tutti
