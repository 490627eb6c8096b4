// The normalization rules that SentencePiece compiles into a model ("precompiled_charsmap"): pieces
// of text and what they become. Layout, little-endian: u32 n, n bytes of a trie, then the
// replacements as text with a zero byte after each. The trie is a double array of u32 units as
// darts-clone writes it (github.com/s-yata/darts-clone): bits 0-7 the label, bit 8 whether a value
// follows, bit 9 and bits 10-30 the offset to the children; a value has bit 31 and is a position in
// the replacements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::data {

struct CharsmapMatch {
  size_t bytes = 0;  // 0: no rule
  std::string_view replacement;
};

class Charsmap {
 public:
  Charsmap() = default;  // without rules
  // Throws corrupt naming `origin` for a map that is not sound.
  Charsmap(std::string_view compiled, const std::string& origin);

  bool empty() const { return units_.empty(); }
  // The longest rule for the start of `text`, or the shortest.
  CharsmapMatch longest(std::string_view text) const { return match(text, false); }
  CharsmapMatch shortest(std::string_view text) const { return match(text, true); }
  // Whether a rule may concern a text that starts with these two ASCII characters and is longer.
  bool starts_with(unsigned char first, unsigned char second) const {
    return (pairs_[first][second >> 6] >> (second & 63) & 1) != 0;
  }

 private:
  CharsmapMatch match(std::string_view text, bool shortest) const;
  bool child(uint32_t& node, unsigned char label, bool& has_value) const;
  void check(const std::string& origin) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
  uint64_t pairs_[128][2] = {};
};

}  // namespace tutti::data
