#include "tutti/data/tokenizers/char_set.h"

#include "tutti/data/tokenizers/pattern.h"

namespace tutti::data {

CharSet::CharSet(const std::string& expression) : bits_(0x110000 / 64) {
  static const std::string all = [] {
    std::string text;
    for (char32_t c = 0; c < 0x110000; ++c) {
      if (c < 0xD800 || c >= 0xE000) append_utf8(text, c);
    }
    return text;
  }();
  const Pattern pattern(expression + "++", "character classes");
  Match match;
  for (size_t from = 0; pattern.find(all, from, match); from = match.end) {
    for (size_t at = match.begin; at < match.end;) {
      const Utf8Char c = decode_utf8(all, at);
      bits_[c.value >> 6] |= uint64_t{1} << (c.value & 63);
      at += c.bytes;
    }
  }
}

const CharSet& space_chars() {
  static const CharSet set("\\s");
  return set;
}
const CharSet& word_chars() {
  static const CharSet set("[\\w\\x{200c}\\x{200d}]");
  return set;
}
const CharSet& punctuation_chars() {
  static const CharSet set("[\\p{P}!-/:-@\\[-`{-~]");
  return set;
}
const CharSet& control_chars() {
  static const CharSet set("[\\p{Cc}\\p{Cf}\\p{Co}\\p{Cn}]");
  return set;
}
const CharSet& nonspacing_marks() {
  static const CharSet set("\\p{Mn}");
  return set;
}
const CharSet& combining_marks() {
  static const CharSet set("\\p{M}");
  return set;
}

}  // namespace tutti::data
