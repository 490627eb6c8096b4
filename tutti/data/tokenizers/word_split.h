// How byte-level tokenizers divide text into words, between which no token reaches. The patterns of
// GPT-2 and Llama 3 are matched by hand; what they say, in the notation of PCRE:
//
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//           ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// Llama 3's with single digits (\p{N}) is Qwen's. Together the words are the text. A byte that is
// not UTF-8 counts as a character that is neither letter, number nor space.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tutti/data/tokenizers/unicode_classes.h"

namespace tutti::data {

enum class WordRule { gpt2, llama3, qwen };

// Files write the ends of lines as \r and \n or as the characters: here the former.
std::string spelled_out(std::string_view expression);
// The rule that this expression spells out, if it is one of them.
bool find_word_rule(const std::string& expression, WordRule& rule);

// The end of the word that starts at `at` < text.size().
size_t word_end(WordRule rule, const UnicodeClasses& classes, std::string_view text, size_t at);

// True when in any text with these two characters side by side a word ends between them, and what
// is after them does not change the words before, nor the other way round. All three rules.
bool always_divides(char32_t before, CharClass before_class, char32_t after, CharClass after_class);

}  // namespace tutti::data
