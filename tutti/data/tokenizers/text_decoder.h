// From tokens to text: the `decoder` of a tokenizer.json. Steps up to the first that joins the
// tokens treat each for itself, and most of them can be done once for the whole vocabulary; the
// others treat the text. Tokens are bytes: those of byte-level vocabularies are what they stand
// for, and tokens <0x00> .. <0xFF> become bytes also where these are no UTF-8. (Hugging Face's
// package would have U+FFFD.)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/data/tokenizers/pattern.h"

namespace tutti::data {

struct DecodeStep {
  enum class Kind {
    fuse,           // joins the tokens; bytes of byte-level vocabularies are joined likewise
    replace,        // every `from`, or every match of `pattern`, by `to`
    byte_fallback,  // runs of tokens <0x00> .. <0xFF> become one token of their bytes
    strip,          // up to `start` and `stop` times the character `from`
    marks,          // `from` becomes a space, with `first` nothing in the first token
    word_piece,     // a token that starts with `from` continues a word, before others goes a space
    clean_up,       // English as it is written: no space before a full stop, "n't", ...
    space_between,  // joins the tokens, with a space between
  };
  Kind kind = Kind::fuse;
  std::string from = {};
  std::string to = {};
  std::shared_ptr<const Pattern> pattern = nullptr;
  int64_t start = 0, stop = 0;
  bool first = false;
};

class TextDecoder {
 public:
  TextDecoder() = default;
  // `tokens` by id.
  TextDecoder(std::vector<DecodeStep> steps, std::vector<std::string> tokens);

  // The text of ids of the vocabulary; `rest`: they continue where others ended.
  std::string decode(std::span<const int32_t> ids, bool rest) const;

 private:
  std::string one(std::string token, size_t from_step, bool first) const;

  std::vector<DecodeStep> steps_;
  size_t joined_ = 0;    // steps before this one are for single tokens
  size_t fallback_ = 0;  // the step after byte_fallback, or 0
  bool spaces_ = false;  // between tokens
  std::vector<std::string> tokens_;
  std::vector<std::string> pieces_;  // what they become behind others
  std::vector<int16_t> bytes_;       // of byte_fallback: the byte, or -1
};

// 10 for <0x0A> and so on; -1 for other tokens.
int fallback_byte(std::string_view token);

}  // namespace tutti::data
