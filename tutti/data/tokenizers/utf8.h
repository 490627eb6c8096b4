// Code points of UTF-8 text (RFC 3629), for tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::data {

struct Utf8Char {
  char32_t value = 0;
  uint32_t bytes = 1;
  bool valid = true;  // false: one byte that starts no character; overlong forms, surrogates, ...
};

// The character that starts at `at` < text.size().
Utf8Char decode_utf8(std::string_view text, size_t at);
// The character that ends at `at` > 0, as decode_utf8 would find it.
Utf8Char decode_utf8_before(std::string_view text, size_t at);

inline bool is_utf8_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

void append_utf8(std::string& out, char32_t c);

}  // namespace tutti::data
