#include "tutti/data/tokenizers/unicode_classes.h"

#include <algorithm>
#include <map>
#include <string>

#include "tutti/data/tokenizers/pattern.h"

namespace tutti::data {
namespace {

constexpr char32_t kCodePoints = 0x110000;

void mark(std::vector<CharClass>& classes, const std::string& all, const char* expression,
          CharClass kind) {
  const Pattern pattern(expression, "unicode classes");
  Match match;
  for (size_t from = 0; pattern.find(all, from, match); from = match.end) {
    for (size_t at = match.begin; at < match.end;) {
      const Utf8Char c = decode_utf8(all, at);
      classes[c.value] = kind;
      at += c.bytes;
    }
  }
}

}  // namespace

UnicodeClasses::UnicodeClasses() {
  std::string all;
  all.reserve(4 * kCodePoints);
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (c < 0xD800 || c >= 0xE000) append_utf8(all, c);
  }
  std::vector<CharClass> classes(kCodePoints, CharClass::other);
  mark(classes, all, "\\p{L}+", CharClass::letter);
  mark(classes, all, "\\p{N}+", CharClass::number);
  mark(classes, all, "\\s+", CharClass::space);

  std::copy_n(classes.begin(), ascii_.size(), ascii_.begin());
  std::map<std::vector<CharClass>, uint16_t> seen;
  for (size_t block = 0; block < block_of_.size(); ++block) {
    const auto first = classes.begin() + static_cast<std::ptrdiff_t>(block << 8);
    std::vector<CharClass> content(first, first + 256);
    const auto [found, fresh] = seen.emplace(content, static_cast<uint16_t>(seen.size()));
    if (fresh) blocks_.insert(blocks_.end(), content.begin(), content.end());
    block_of_[block] = found->second;
  }
}

const UnicodeClasses& unicode_classes() {
  static const UnicodeClasses classes;
  return classes;
}

size_t UnicodeClasses::run_end(std::string_view text, size_t position, CharClass kind) const {
  while (position < text.size()) {
    const ClassifiedChar c = at(text, position);
    if (c.kind != kind) break;
    position += c.bytes;
  }
  return position;
}

}  // namespace tutti::data
