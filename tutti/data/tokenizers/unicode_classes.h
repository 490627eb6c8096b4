// Which kind of character a code point is, as tokenizers' patterns ask: \p{L}, \p{N}, \s. Made at
// start from PCRE2's tables (Unicode 14 in Debian 12, as in Oniguruma 6.9.8, which the Hugging Face
// package uses), so that a pattern means the same however it is matched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {

enum class CharClass : uint8_t { other, letter, number, space };

// Kind and length of one character; a byte that is not UTF-8 is an `other` of one byte.
struct ClassifiedChar {
  CharClass kind = CharClass::other;
  uint32_t bytes = 1;
};

class UnicodeClasses {
 public:
  UnicodeClasses();

  CharClass of(char32_t c) const {
    return c < 0x80 ? ascii_[c] : blocks_[size_t{block_of_[c >> 8]} << 8 | (c & 0xFF)];
  }
  ClassifiedChar at(std::string_view text, size_t position) const {
    const auto byte = static_cast<unsigned char>(text[position]);
    if (byte < 0x80) return {ascii_[byte], 1};
    const Utf8Char c = decode_utf8(text, position);
    return {c.valid ? of(c.value) : CharClass::other, c.bytes};
  }
  // Where the run of `kind` that may start at `position` ends.
  size_t run_end(std::string_view text, size_t position, CharClass kind) const;

 private:
  std::array<CharClass, 128> ascii_{};
  std::array<uint16_t, 0x1100> block_of_{};  // 256 code points each
  std::vector<CharClass> blocks_;            // the distinct blocks
};

// Made once, at the first call: it takes some 25 ms.
const UnicodeClasses& unicode_classes();

}  // namespace tutti::data
