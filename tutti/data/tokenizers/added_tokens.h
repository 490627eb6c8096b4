// Tokens that are found in the text before it is divided into words, as `added_tokens` of a
// tokenizer.json asks: the leftmost and of those the longest, without overlap.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/data/tokenizers/pattern.h"
#include "tutti/data/tokenizers/unicode_classes.h"

namespace tutti::data {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      // a control token, which text may spell without meaning it
  bool single_word = false;  // only where no word character is at either side
  bool strip_left = false;   // takes the white space before it along
  bool strip_right = false;
  bool normalized = true;  // looked for in the normalized text
};

// A part of the text: a token, or text between tokens (id < 0).
struct TextPart {
  size_t begin = 0, end = 0;
  int32_t id = -1;
};

class AddedTokens {
 public:
  // Of those tokens that are looked for in normalized text, or of the others. Without `special`,
  // control tokens are passed over and left in the text as text.
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized, bool special);

  bool empty() const { return tokens_.empty(); }
  // The parts of `text`, none of them empty.
  void find(const UnicodeClasses& classes, std::string_view text,
            std::vector<TextPart>& parts) const;
  // The same for text that a chat template wrote, with the chat::Origin of every byte: special
  // tokens are found where the template wrote all of them, those of `guarded` ids where no byte
  // came from a user, and all others anywhere.
  void find_in_chat(const UnicodeClasses& classes, std::string_view text, std::string_view origins,
                    const std::vector<int32_t>& guarded, std::vector<TextPart>& parts) const;
  // Whether a token near `position`, found or not, could depend on text at both sides of it.
  bool touches(const UnicodeClasses& classes, std::string_view text, size_t position) const;

 private:
  using Accept = std::function<bool(const AddedToken& token, size_t at)>;
  // The longest that is accepted; every token is where there is no `accept`.
  const AddedToken* longest_at(std::string_view text, size_t at, const Accept& accept) const;
  void find_parts(const UnicodeClasses& classes, std::string_view text, const Accept& accept,
                  std::vector<TextPart>& parts) const;
  bool is_word(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;  // sorted by first byte, then longest first
  uint32_t first_[257] = {};        // tokens_[first_[b], first_[b + 1]) start with byte b
  size_t longest_ = 0;
  bool special_;
  std::vector<Pattern> word_;  // one \w, where a token asks for single words
};

}  // namespace tutti::data
