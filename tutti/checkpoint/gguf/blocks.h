// Element types of GGUF tensors that Tutti reads and writes: F32, F16, BF16, and blocks of 32
// elements with one F16 scale: Q8_0 (8 bits each) and Q4_0 (4 bits each).
//
//   Q8_0  scale d, i8 q[32]           x = d q             d = max|x| / 127
//   Q4_0  scale d, u8 with two each   x = d (q - 8)       d = (x of the greatest magnitude) / -8
//         byte i has element i in its low half and element i + 16 in its high half
//
// Source: ggml's reference of quantize_row_q8_0 and quantize_row_q4_0; the bytes are the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::checkpoint {

enum class GgufType : uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8, bf16 = 30 };

inline constexpr int64_t kGgufBlock = 32;  // elements per block of Q8_0 and Q4_0

const char* gguf_type_name(GgufType type);  // "f32", "q8_0", ...
std::optional<GgufType> gguf_type_of(uint32_t stored);
GgufType parse_gguf_type(const std::string& name);  // f32, bf16, f16, q8_0, q4_0; throws usage
bool is_blocked(GgufType type);

// Bytes of `count` elements; for blocks `count` is a multiple of kGgufBlock. -1: beyond 63 bits.
int64_t gguf_bytes(GgufType type, int64_t count);

// `count` elements, a multiple of kGgufBlock for blocks. Encoding rounds to nearest, with ggml's
// ties. Throws corrupt naming `name` for values that are not finite.
void encode_gguf(GgufType type, const float* from, int64_t count, char* to, std::string_view name);
void decode_gguf(GgufType type, const char* from, int64_t count, float* to, std::string_view name);

}  // namespace tutti::checkpoint
