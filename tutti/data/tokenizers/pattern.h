// Regular expressions of tokenizer files, through PCRE2 (UTF, Unicode properties, compiled to
// machine code). The files are written for Oniguruma; what differs is bridged here: ^ and $ match
// at every line, \s and \w are Unicode's White_Space and word characters, and \h, \H, \b, \B,
// and \W in brackets are refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tutti::data {

struct Match {
  size_t begin = 0, end = 0;
};

class Pattern {
 public:
  // Throws corrupt naming `origin`, the pattern, the position and the cause.
  Pattern(const std::string& expression, const std::string& origin);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // The first match in `text` that starts at `from` or later and is not empty. Bytes that are not
  // UTF-8 match nothing and end what is before them. May be called from many threads. Throws usage
  // when the search exceeds the library's limits.
  bool find(std::string_view text, size_t from, Match& match) const;

  const std::string& expression() const;  // as it was given

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string pattern_unicode_version();  // such as "14.0.0"

}  // namespace tutti::data
