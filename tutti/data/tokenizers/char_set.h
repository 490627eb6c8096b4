// A set of code points, such as all of \p{P}, as tokenizers ask character by character. Made from
// an expression of PCRE2, so that a class means the same here as in patterns: 136 KiB and some 10
// ms each, at first use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {

class CharSet {
 public:
  // `expression` is a class of characters.
  explicit CharSet(const std::string& expression);

  bool has(char32_t c) const { return (bits_[c >> 6] >> (c & 63) & 1) != 0; }
  // A byte that is not UTF-8 is in no set.
  bool has(const Utf8Char& c) const { return c.valid && has(c.value); }

 private:
  std::vector<uint64_t> bits_;
};

const CharSet& space_chars();        // White_Space
const CharSet& word_chars();         // \w of Unicode's Technical Standard 18
const CharSet& punctuation_chars();  // \p{P} and ASCII's signs: BERT's punctuation
const CharSet& control_chars();      // \p{Cc}, \p{Cf}, \p{Co} and what is not assigned
const CharSet& nonspacing_marks();   // \p{Mn}
const CharSet& combining_marks();    // \p{M}

}  // namespace tutti::data
