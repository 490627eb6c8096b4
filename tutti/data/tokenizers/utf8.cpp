#include "tutti/data/tokenizers/utf8.h"

#include <algorithm>

namespace tutti::data {

Utf8Char decode_utf8(std::string_view text, size_t at) {
  constexpr Utf8Char kInvalid{0xFFFD, 1, false};
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, true};
  const uint32_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at < length) return kInvalid;
  char32_t value = lead & (0x7FU >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if (!is_utf8_continuation(text[at + i])) return kInvalid;
    value = value << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (overlong || (value >= 0xD800 && value < 0xE000) || value > 0x10FFFF) return kInvalid;
  return {value, length, true};
}

Utf8Char decode_utf8_before(std::string_view text, size_t at) {
  for (size_t back = 1; back <= std::min<size_t>(4, at); ++back) {
    if (is_utf8_continuation(text[at - back])) continue;
    const Utf8Char c = decode_utf8(text.substr(0, at), at - back);
    if (c.bytes == back) return c;
    break;
  }
  return {0xFFFD, 1, false};
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace tutti::data
