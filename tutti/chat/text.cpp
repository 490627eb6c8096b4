#include "tutti/chat/text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

namespace tutti::chat {
namespace {

// The start of the code point that ends before `end`.
size_t code_point_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool in_set(const std::optional<std::string>& chars, std::string_view c, char32_t value) {
  if (!chars) return is_python_space(value);
  for (size_t at = chars->find(c); at != std::string::npos; at = chars->find(c, at + 1)) {
    if ((static_cast<unsigned char>((*chars)[at]) & 0xC0) != 0x80) return true;
  }
  return false;
}

// The words between white space, as [begin, end) in bytes.
std::vector<Text> split_at_space(const Text& text, int64_t most, bool from_right) {
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes;
  size_t begin = 0;
  size_t end = bytes.size();
  const auto skip_left = [&](size_t at, bool spaces) {
    size_t width = 0;
    while (at < end && is_python_space(code_point(bytes, at, width)) == spaces) at += width;
    return at;
  };
  const auto skip_right = [&](size_t at, bool spaces) {
    size_t width = 0;
    while (at > begin) {
      const size_t before = code_point_before(bytes, at);
      if (is_python_space(code_point(bytes, before, width)) != spaces) break;
      at = before;
    }
    return at;
  };
  if (from_right) {
    for (;;) {
      end = skip_right(end, true);
      if (end == begin) break;
      const bool rest = most >= 0 && static_cast<int64_t>(parts.size()) == most;
      const size_t word = rest ? skip_left(begin, true) : skip_right(end, false);
      parts.push_back(text.part(rest ? begin : word, end));
      if (rest) break;
      end = word;
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (;;) {
    begin = skip_left(begin, true);
    if (begin == end) break;
    const bool rest = most >= 0 && static_cast<int64_t>(parts.size()) == most;
    const size_t word = rest ? end : skip_left(begin, false);
    parts.push_back(text.part(begin, word));
    begin = word;
  }
  return parts;
}

void append_cased(std::string_view bytes, LetterCase wanted, Text& out, Origin origin) {
  icu::UnicodeString text = icu::UnicodeString::fromUTF8(
      icu::StringPiece(bytes.data(), static_cast<int32_t>(bytes.size())));
  if (wanted == LetterCase::upper) {
    text.toUpper(icu::Locale::getRoot());
  } else {
    text.toLower(icu::Locale::getRoot());
  }
  std::string changed;
  text.toUTF8String(changed);
  out.append(changed, origin);
}

// One character as the first of a word.
void append_titled(std::string_view bytes, Text& out, Origin origin) {
  icu::UnicodeString text = icu::UnicodeString::fromUTF8(
      icu::StringPiece(bytes.data(), static_cast<int32_t>(bytes.size())));
  text.toTitle(nullptr, icu::Locale::getRoot());
  std::string changed;
  text.toUTF8String(changed);
  out.append(changed, origin);
}

// Converts [begin, end) of bytes to another case, each run of one origin separately.
void append_runs(const Text& text, size_t begin, size_t end, LetterCase wanted, Text& out) {
  while (begin < end) {
    size_t run = begin;
    while (run < end && text.origins[run] == text.origins[begin]) ++run;
    append_cased(std::string_view(text.bytes).substr(begin, run - begin), wanted, out,
                 static_cast<Origin>(text.origins[begin]));
    begin = run;
  }
}

}  // namespace

Text::Text(std::string_view text, Origin origin)
    : bytes(text), origins(text.size(), static_cast<char>(origin)) {}

void Text::append(const Text& other) {
  bytes += other.bytes;
  origins += other.origins;
}

void Text::append(const Text& other, size_t begin, size_t end) {
  bytes.append(other.bytes, begin, end - begin);
  origins.append(other.origins, begin, end - begin);
}

void Text::append(std::string_view text, Origin origin) {
  bytes += text;
  origins.append(text.size(), static_cast<char>(origin));
}

Text Text::part(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

Origin least_trusted(Origin a, Origin b) { return std::max(a, b); }

Origin least_trusted(const Text& text) {
  const auto most = std::max_element(text.origins.begin(), text.origins.end());
  return most == text.origins.end() ? Origin::from_template : static_cast<Origin>(*most);
}

bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

char32_t code_point(std::string_view text, size_t at, size_t& bytes) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const char32_t first = byte(0);
  if (first < 0x80) return bytes = 1, first;
  if (first < 0xE0) return bytes = 2, ((first & 0x1F) << 6) | (byte(1) & 0x3F);
  if (first < 0xF0) {
    return bytes = 3, ((first & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
  }
  return bytes = 4, ((first & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) |
                        (byte(3) & 0x3F);
}

void append_code_point(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6)), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

int64_t code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::vector<Text> characters(const Text& text) {
  std::vector<Text> all;
  for (size_t at = 0, width = 0; at < text.size(); at += width) {
    code_point(text.bytes, at, width);
    all.push_back(text.part(at, at + width));
  }
  return all;
}

SliceRange slice_range(int64_t length, std::optional<int64_t> start, std::optional<int64_t> stop,
                       int64_t step) {
  const int64_t lower = step < 0 ? -1 : 0;
  const int64_t upper = step < 0 ? length - 1 : length;
  const auto clamp = [&](int64_t value) {
    if (value < 0) return std::max(value + length, lower);
    return std::min(value, upper);
  };
  const int64_t first = start ? clamp(*start) : step < 0 ? upper : lower;
  const int64_t last = stop ? clamp(*stop) : step < 0 ? lower : upper;
  SliceRange range{first, step, 0};
  // Unsigned: a step may be INT64_MIN.
  if (step > 0 && last > first) {
    range.count = 1 + (last - first - 1) / step;
  } else if (step < 0 && last < first) {
    const uint64_t size = uint64_t{0} - static_cast<uint64_t>(step);
    range.count = 1 + static_cast<int64_t>(static_cast<uint64_t>(first - last - 1) / size);
  }
  return range;
}

Text slice_text(const Text& text, std::optional<int64_t> start, std::optional<int64_t> stop,
                int64_t step) {
  std::vector<size_t> at;  // of every code point, and the end
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text.bytes[i]) & 0xC0) != 0x80) at.push_back(i);
  }
  const auto length = static_cast<int64_t>(at.size());
  at.push_back(text.size());
  const SliceRange range = slice_range(length, start, stop, step);
  if (range.count == 0) return {};
  const auto byte = [&](int64_t index) { return at[static_cast<size_t>(index)]; };
  if (step == 1) return text.part(byte(range.first), byte(range.first + range.count));
  Text out;
  int64_t index = range.first;
  for (int64_t i = 0; i < range.count; ++i) {
    out.append(text, byte(index), byte(index + 1));
    if (i + 1 < range.count) index += step;
  }
  return out;
}

Text strip_text(const Text& text, const std::optional<std::string>& chars, bool left, bool right) {
  const std::string_view bytes = text.bytes;
  size_t begin = 0;
  size_t end = bytes.size();
  size_t width = 0;
  while (left && begin < end) {
    const char32_t c = code_point(bytes, begin, width);
    if (!in_set(chars, bytes.substr(begin, width), c)) break;
    begin += width;
  }
  while (right && end > begin) {
    const size_t before = code_point_before(bytes, end);
    const char32_t c = code_point(bytes, before, width);
    if (!in_set(chars, bytes.substr(before, width), c)) break;
    end = before;
  }
  return text.part(begin, end);
}

std::vector<Text> split_text(const Text& text, const std::optional<std::string>& separator,
                             int64_t most, bool from_right) {
  if (!separator) return split_at_space(text, most, from_right);
  std::vector<Text> parts;
  const std::string& bytes = text.bytes;
  const auto may = [&] { return most < 0 || static_cast<int64_t>(parts.size()) < most; };
  if (from_right) {
    size_t end = bytes.size();
    while (may() && end >= separator->size()) {
      const size_t found = bytes.rfind(*separator, end - separator->size());
      if (found == std::string::npos) break;
      parts.push_back(text.part(found + separator->size(), end));
      end = found;
    }
    parts.push_back(text.part(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (may()) {
    const size_t found = bytes.find(*separator, begin);
    if (found == std::string::npos) break;
    parts.push_back(text.part(begin, found));
    begin = found + separator->size();
  }
  parts.push_back(text.part(begin, bytes.size()));
  return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  const auto ends_line = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0, width = 0; at < text.size();) {
    const char32_t c = code_point(text.bytes, at, width);
    const size_t end = at;
    at += width;
    if (!ends_line(c)) continue;
    if (c == '\r' && at < text.size() && text.bytes[at] == '\n') ++at;
    lines.push_back(text.part(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.part(begin, text.size()));
  return lines;
}

Text replace_text(const Text& text, const std::string& old, const Text& by, int64_t most) {
  Text out;
  size_t done = 0;
  int64_t count = 0;
  const auto may = [&] { return most < 0 || count < most; };
  if (old.empty()) {  // before every character, and at the end
    for (size_t at = 0, width = 0; at < text.size() && may(); at += width, ++count) {
      code_point(text.bytes, at, width);
      out.append(by);
      out.append(text, at, at + width);
      done = at + width;
    }
    const bool end = done == text.size() && may();
    out.append(text, done, text.size());
    if (end) out.append(by);
    return out;
  }
  while (may()) {
    const size_t found = text.bytes.find(old, done);
    if (found == std::string::npos) break;
    out.append(text, done, found);
    out.append(by);
    done = found + old.size();
    ++count;
  }
  out.append(text, done, text.size());
  return out;
}

int64_t find_text(std::string_view text, std::string_view what, bool last) {
  const size_t found = last ? text.rfind(what) : text.find(what);
  return found == std::string_view::npos ? -1 : code_points(text.substr(0, found));
}

int64_t count_text(std::string_view text, std::string_view what) {
  if (what.empty()) return code_points(text) + 1;
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size())) {
    ++count;
  }
  return count;
}

Text change_case(const Text& text, LetterCase wanted) {
  Text out;
  if (wanted == LetterCase::upper || wanted == LetterCase::lower) {
    append_runs(text, 0, text.size(), wanted, out);
    return out;
  }
  bool starts = true;
  size_t lower = 0;  // [lower, at) becomes lower case
  for (size_t at = 0, width = 0; at < text.size(); at += width) {
    const char32_t c = code_point(text.bytes, at, width);
    if (starts && (wanted == LetterCase::capitalized || u_isalpha(static_cast<UChar32>(c)) != 0)) {
      append_runs(text, lower, at, LetterCase::lower, out);
      append_titled(std::string_view(text.bytes).substr(at, width), out,
                    static_cast<Origin>(text.origins[at]));
      lower = at + width;
    }
    starts = wanted == LetterCase::title && u_isalpha(static_cast<UChar32>(c)) == 0;
  }
  append_runs(text, lower, text.size(), LetterCase::lower, out);
  return out;
}

bool is_all(std::string_view text, TextClass wanted) {
  bool any = false;  // a cased letter, or any character
  for (size_t at = 0, width = 0; at < text.size(); at += width) {
    const char32_t c = code_point(text, at, width);
    const auto u = static_cast<UChar32>(c);
    switch (wanted) {
      case TextClass::space:
        if (!is_python_space(c)) return false;
        any = true;
        break;
      case TextClass::alpha:
        if (u_isalpha(u) == 0) return false;
        any = true;
        break;
      case TextClass::digit:
        if (u_charDigitValue(u) < 0) return false;
        any = true;
        break;
      case TextClass::alnum:
        if (u_isalpha(u) == 0 && u_getNumericValue(u) == U_NO_NUMERIC_VALUE) return false;
        any = true;
        break;
      case TextClass::lower:
        if (u_isUUppercase(u) != 0 || u_istitle(u) != 0) return false;
        any = any || u_isULowercase(u) != 0;
        break;
      case TextClass::upper:
        if (u_isULowercase(u) != 0 || u_istitle(u) != 0) return false;
        any = any || u_isUUppercase(u) != 0;
        break;
    }
  }
  return any;
}

}  // namespace tutti::chat
