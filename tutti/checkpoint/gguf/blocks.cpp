#include "tutti/checkpoint/gguf/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/checkpoint/store/elements.h"

namespace tutti::checkpoint {
namespace {

struct TypeFacts {
  GgufType type;
  const char* name;
  int64_t block;  // elements
  int64_t bytes;  // per block
};
constexpr TypeFacts kTypes[] = {{GgufType::f32, "f32", 1, 4},
                                {GgufType::f16, "f16", 1, 2},
                                {GgufType::bf16, "bf16", 1, 2},
                                {GgufType::q8_0, "q8_0", kGgufBlock, 34},
                                {GgufType::q4_0, "q4_0", kGgufBlock, 18}};

const TypeFacts& facts_of(GgufType type) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const TypeFacts& facts) { return facts.type == type; });
  TUTTI_CHECK(found != std::end(kTypes), "GGUF type {}", static_cast<uint32_t>(type));
  return *found;
}

DType plain_type(GgufType type) {
  return type == GgufType::f32 ? DType::f32 : type == GgufType::f16 ? DType::f16 : DType::bf16;
}

void put_scale(float scale, char*& to) {
  const uint16_t bits = to_f16_bits(scale);
  std::memcpy(to, &bits, sizeof bits);
  to += sizeof bits;
}

float take_scale(const char*& from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  from += sizeof bits;
  return f16_bits_to_f32(bits);
}

void encode_q8(const float* from, char*& to) {
  float most = 0;
  for (int64_t i = 0; i < kGgufBlock; ++i) most = std::max(most, std::fabs(from[i]));
  const float scale = most / 127.0F;
  const float inverse = scale != 0 ? 1.0F / scale : 0.0F;
  put_scale(scale, to);
  for (int64_t i = 0; i < kGgufBlock; ++i) {
    *to++ = static_cast<char>(static_cast<int8_t>(std::roundf(from[i] * inverse)));
  }
}

void encode_q4(const float* from, char*& to) {
  float most = 0;
  float signed_most = 0;
  for (int64_t i = 0; i < kGgufBlock; ++i) {
    if (std::fabs(from[i]) <= most) continue;
    most = std::fabs(from[i]);
    signed_most = from[i];
  }
  const float scale = signed_most / -8.0F;
  const float inverse = scale != 0 ? 1.0F / scale : 0.0F;
  put_scale(scale, to);
  const auto code = [&](int64_t i) {
    return static_cast<unsigned>(std::min(15, static_cast<int>(from[i] * inverse + 8.5F)));
  };
  for (int64_t i = 0; i < kGgufBlock / 2; ++i) {
    *to++ = static_cast<char>(code(i) | (code(i + kGgufBlock / 2) << 4U));
  }
}

void decode_block(GgufType type, const char*& from, float* to) {
  const float scale = take_scale(from);
  if (type == GgufType::q8_0) {
    for (int64_t i = 0; i < kGgufBlock; ++i) {
      to[i] = scale * static_cast<float>(static_cast<int8_t>(*from++));
    }
    return;
  }
  for (int64_t i = 0; i < kGgufBlock / 2; ++i) {
    const auto both = static_cast<unsigned char>(*from++);
    to[i] = scale * static_cast<float>(static_cast<int>(both & 15U) - 8);
    to[i + kGgufBlock / 2] = scale * static_cast<float>(static_cast<int>(both >> 4U) - 8);
  }
}

void check_finite(const float* values, int64_t count, std::string_view name) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) {
      fail(ErrorKind::corrupt, "{}: element {} is not a finite number", name, i);
    }
  }
}

}  // namespace

const char* gguf_type_name(GgufType type) { return facts_of(type).name; }

std::optional<GgufType> gguf_type_of(uint32_t stored) {
  for (const TypeFacts& facts : kTypes) {
    if (static_cast<uint32_t>(facts.type) == stored) return facts.type;
  }
  return std::nullopt;
}

GgufType parse_gguf_type(const std::string& name) {
  for (const TypeFacts& facts : kTypes) {
    if (name == facts.name) return facts.type;
  }
  fail(ErrorKind::usage, "--dtype: unknown GGUF type '{}'; accepted: f32, bf16, f16, q8_0, q4_0",
       name);
}

bool is_blocked(GgufType type) { return facts_of(type).block > 1; }

int64_t gguf_bytes(GgufType type, int64_t count) {
  const TypeFacts& facts = facts_of(type);
  TUTTI_CHECK(count >= 0 && count % facts.block == 0, "{} elements of {}", count, facts.name);
  int64_t bytes = 0;
  return __builtin_mul_overflow(count / facts.block, facts.bytes, &bytes) ? -1 : bytes;
}

void encode_gguf(GgufType type, const float* from, int64_t count, char* to, std::string_view name) {
  if (!is_blocked(type)) {
    return convert_elements(DType::f32, from, plain_type(type), to, count, name);
  }
  check_finite(from, count, name);
  for (int64_t i = 0; i < count; i += kGgufBlock) {
    if (type == GgufType::q8_0) {
      encode_q8(from + i, to);
    } else {
      encode_q4(from + i, to);
    }
  }
}

void decode_gguf(GgufType type, const char* from, int64_t count, float* to, std::string_view name) {
  if (!is_blocked(type)) {
    return convert_elements(plain_type(type), from, DType::f32, to, count, name);
  }
  for (int64_t i = 0; i < count; i += kGgufBlock) decode_block(type, from, to + i);
  check_finite(to, count, name);
}

}  // namespace tutti::checkpoint
