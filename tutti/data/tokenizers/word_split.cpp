#include "tutti/data/tokenizers/word_split.h"

#include <algorithm>

namespace tutti::data {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool is_newline(char c) { return c == '\r' || c == '\n'; }

// Bytes of a contraction ('s, 't, 're, 've, 'm, 'll, 'd) at `at`, where the apostrophe is; 0: none.
// Without case, the long s (U+017F) is an s.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) {
    const char c = at + i < text.size() ? text[at + i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = letter(2);
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (any_case && first == '\xc5' && second == '\xbf') return 3;
  return 0;
}

// \s+(?!\S)|\s+ at `at`, where a space is: leaves the last one to the word that follows.
size_t blank_end(const UnicodeClasses& classes, std::string_view text, size_t at) {
  const size_t end = classes.run_end(text, at, CharClass::space);
  if (end == text.size()) return end;
  const size_t last = end - decode_utf8_before(text, end).bytes;
  return last == at ? end : last;
}

size_t gpt2_end(const UnicodeClasses& classes, std::string_view text, size_t at) {
  if (text[at] == '\'') {
    if (const size_t bytes = contraction(text, at, false)) return at + bytes;
  }
  const size_t body = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  const ClassifiedChar c = classes.at(text, body);
  if (c.kind == CharClass::space) return blank_end(classes, text, at);
  return classes.run_end(text, body + c.bytes, c.kind);
}

size_t llama3_end(const UnicodeClasses& classes, std::string_view text, size_t at, int digits) {
  if (text[at] == '\'') {
    if (const size_t bytes = contraction(text, at, true)) return at + bytes;
  }
  const ClassifiedChar c = classes.at(text, at);
  const size_t after = at + c.bytes;
  if (c.kind == CharClass::letter) return classes.run_end(text, after, CharClass::letter);
  if (c.kind == CharClass::number) {
    size_t end = after;
    for (int i = 1; i < digits && end < text.size(); ++i) {
      const ClassifiedChar next = classes.at(text, end);
      if (next.kind != CharClass::number) break;
      end += next.bytes;
    }
    return end;
  }
  const ClassifiedChar next = after < text.size() ? classes.at(text, after) : ClassifiedChar{};
  const bool has_next = after < text.size();
  if (has_next && next.kind == CharClass::letter && !is_newline(text[at])) {
    return classes.run_end(text, after + next.bytes, CharClass::letter);
  }
  if (c.kind == CharClass::other ||
      (text[at] == ' ' && has_next && next.kind == CharClass::other)) {
    size_t end = classes.run_end(text, after, CharClass::other);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  const size_t end = classes.run_end(text, after, CharClass::space);
  for (size_t i = end; i > at; --i) {
    if (is_newline(text[i - 1])) return i;
  }
  return blank_end(classes, text, at);
}

}  // namespace

std::string spelled_out(std::string_view expression) {
  std::string out;
  for (const char c : expression) {
    out += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

bool find_word_rule(const std::string& expression, WordRule& rule) {
  if (expression == kGpt2) {
    rule = WordRule::gpt2;
  } else if (expression == kLlama3) {
    rule = WordRule::llama3;
  } else if (expression == kQwen) {
    rule = WordRule::qwen;
  } else {
    return false;
  }
  return true;
}

size_t word_end(WordRule rule, const UnicodeClasses& classes, std::string_view text, size_t at) {
  switch (rule) {
    case WordRule::gpt2: return gpt2_end(classes, text, at);
    case WordRule::llama3: return llama3_end(classes, text, at, 3);
    case WordRule::qwen: break;
  }
  return llama3_end(classes, text, at, 1);
}

bool always_divides(char32_t before, CharClass before_class, char32_t after,
                    CharClass after_class) {
  // Letters and numbers only ever end a word or are followed by their like.
  if (before_class == CharClass::letter || before_class == CharClass::number) {
    return before_class != after_class;
  }
  // Signs take line ends along in Llama 3, other blanks nowhere.
  return before_class == CharClass::other && after_class == CharClass::space && after != '\r' &&
         after != '\n' && before != 0xFFFD;
}

}  // namespace tutti::data
