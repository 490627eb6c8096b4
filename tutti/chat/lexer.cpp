#include "tutti/chat/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/chat/text.h"

namespace tutti::chat {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Converts all line breaks to \n, and removes one at the end.
std::string plain_lines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& origin)
      : source_(std::move(source)), origin_(origin) {}

  std::vector<Token> read() {
    while (at_ < source_.size()) read_data();
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::usage, "{}:{}: {}", origin_, line_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  bool has(std::string_view what) const {
    return std::string_view(source_).substr(at_, what.size()) == what;
  }
  void advance(size_t bytes) {
    const size_t end = std::min(at_ + bytes, source_.size());
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
    line_starts_ = at_ > 0 && source_[at_ - 1] == '\n';
  }
  void skip_space() {
    size_t width = 0;
    while (at_ < source_.size() && is_python_space(code_point(source_, at_, width))) advance(width);
  }

  // The text before the tag at `tag`, whose sign is `sign`.
  void put_data(size_t tag, char sign, bool strips_line) {
    const std::string_view data = std::string_view(source_).substr(at_, tag - at_);
    size_t size = data.size();
    if (sign == '-') {
      size = strip_text(Text(data), std::nullopt, false, true).size();
    } else if (sign != '+' && strips_line) {
      const size_t newline = data.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      const bool blank = strip_text(Text(data.substr(start)), std::nullopt, true, false).empty();
      if ((start > 0 || line_starts_) && blank) size = start;
    }
    if (size > 0) tokens_.push_back({TokenKind::data, std::string(data.substr(0, size)), line_});
    advance(tag - at_);
  }

  // Length of `{% raw %}` at `tag`; 0 if it is another tag. Sets the sign after the brace.
  size_t raw_length(size_t tag, std::string_view word, char& sign) const {
    size_t at = tag + 2;
    const auto peek = [&](size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    sign = peek(at) == '-' || peek(at) == '+' ? peek(at) : '\0';
    if (sign != '\0') ++at;
    const auto spaces = [&] {
      size_t width = 0;
      while (at < source_.size() && is_python_space(code_point(source_, at, width))) at += width;
    };
    spaces();
    if (source_.compare(at, word.size(), word) != 0) return 0;
    at += word.size();
    spaces();
    const bool ends = source_.compare(at, 2, "%}") == 0;
    const char last = peek(at);
    const bool signed_end =
        (last == '-' || (last == '+' && word == "endraw")) && source_.compare(at + 1, 2, "%}") == 0;
    if (!ends && !signed_end) return 0;
    at += ends ? 2 : 3;
    if (last == '-') {
      spaces();
    } else if (ends && word == "endraw" && peek(at) == '\n') {
      ++at;  // trim_blocks, which does not apply to the start of raw text
    }
    return at - tag;
  }

  void read_data() {
    size_t tag = at_;
    for (;;) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        tokens_.push_back({TokenKind::data, source_.substr(at_), line_});
        at_ = source_.size();
        return;
      }
      const char next = source_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    char sign = '\0';
    if (kind == '%') {
      if (const size_t raw = raw_length(tag, "raw", sign)) {
        put_data(tag, sign, true);
        advance(raw);
        return read_raw();
      }
    }
    sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    put_data(tag, sign, kind != '{');
    const int begin = line_;
    advance(sign == '\0' ? 2 : 3);
    if (kind == '#') return read_comment(begin);
    const bool block = kind == '%';
    tokens_.push_back({block ? TokenKind::block_begin : TokenKind::print_begin, "", begin});
    read_tag(block);
  }

  void read_raw() {
    const int begin = line_;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      char sign = '\0';
      const size_t length = raw_length(tag, "endraw", sign);
      if (length == 0) continue;
      put_data(tag, sign, true);
      return advance(length);
    }
    line_ = begin;
    refuse("'{{% raw %}}' is not closed by '{{% endraw %}}'");
  }

  void read_comment(int begin) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) {
      line_ = begin;
      refuse("the comment that starts here is not closed by '#}}'");
    }
    // A sign belongs to the comment if it has one before its end.
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    end_block(sign);
  }

  void end_block(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && has("\n")) {
      advance(1);
    }
  }

  // Whether the tag ends here; consumes the end if so.
  bool ends_tag(bool block) {
    const char* closing = block ? "%}" : "}}";
    const bool has_sign = has("-") || (block && has("+"));
    if (!has(closing) && !(has_sign && source_.compare(at_ + 1, 2, closing) == 0)) {
      return false;
    }
    const char sign = has(closing) ? '\0' : source_[at_];
    tokens_.push_back({block ? TokenKind::block_end : TokenKind::print_end, "", line_});
    advance(sign == '\0' ? 2 : 3);
    if (block) {
      end_block(sign);
    } else if (sign == '-') {
      skip_space();
    }
    return true;
  }

  void read_tag(bool block) {
    const int begin = line_;
    brackets_.clear();
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) {
        line_ = begin;
        refuse("the tag that starts here is not closed by '{}'", block ? "%}" : "}}");
      }
      if (brackets_.empty() && ends_tag(block)) return;
      const char c = source_[at_];
      if (is_digit(c)) {
        read_number();
      } else if (is_name_char(c)) {
        size_t end = at_;
        while (end < source_.size() && is_name_char(source_[end])) ++end;
        put(TokenKind::name, end - at_);
      } else if (c == '\'' || c == '"') {
        read_text(c);
      } else {
        read_symbol();
      }
    }
  }

  void put(TokenKind kind, size_t bytes) {
    tokens_.push_back({kind, source_.substr(at_, bytes), line_});
    advance(bytes);
  }

  void read_number() {
    const auto digits = [&](size_t at) {
      while (at < source_.size() &&
             (is_digit(source_[at]) ||
              (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
        ++at;
      }
      return at;
    };
    const auto is_digit_at = [&](size_t at) {
      return at < source_.size() && is_digit(source_[at]);
    };
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const size_t whole = digits(at_);
    size_t end = whole;
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.' && is_digit_at(end + 1))
        end = digits(end + 1);
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        if (is_digit_at(exponent)) end = digits(exponent);
      }
    }
    if (end > whole) return put(TokenKind::real, end - at_);
    if (source_[at_] == '0' && whole == at_ + 1 && whole < source_.size() &&
        std::string_view("bBoOxX").find(source_[whole]) != std::string_view::npos) {
      refuse("only decimal numbers are supported, not '{}'", source_.substr(at_, 2));
    }
    put(TokenKind::integer, whole - at_);
    std::string& text = tokens_.back().text;
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  }

  // \xHH, \uHHHH and \UHHHHHHHH.
  void read_code(std::string& out, size_t& at, size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at) {
      const char c = at < source_.size() ? source_[at] : '\0';
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) refuse("an escape has too few digits");
      value = value * 16 + static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      refuse("the escape of U+{:04X} is not a character", static_cast<uint32_t>(value));
    }
    append_code_point(out, value);
  }

  void read_escape(std::string& out, size_t& at) {
    const char c = source_[at++];
    switch (c) {
      case '\n': return;
      case 'n': out += '\n'; return;
      case 't': out += '\t'; return;
      case 'r': out += '\r'; return;
      case 'a': out += '\a'; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'v': out += '\v'; return;
      case '\\':
      case '\'':
      case '"': out += c; return;
      case 'x': return read_code(out, at, 2);
      case 'u': return read_code(out, at, 4);
      case 'U': return read_code(out, at, 8);
      case 'N': refuse("escapes by name (\\N) are not supported; write \\u and four digits");
      default: break;
    }
    if (c < '0' || c > '7') {
      out += '\\';
      out += c;
      return;
    }
    char32_t value = static_cast<char32_t>(c - '0');
    for (int i = 0; i < 2 && at < source_.size() && source_[at] >= '0' && source_[at] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(source_[at++] - '0');
    }
    append_code_point(out, value);
  }

  void read_text(char quote) {
    std::string out;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\') {
        out += source_[at++];
      } else if (++at < source_.size()) {
        read_escape(out, at);
      }
    }
    if (at >= source_.size()) refuse("the string that starts here is not closed by {}", quote);
    tokens_.push_back({TokenKind::text, std::move(out), line_});
    advance(at + 1 - at_);
  }

  void read_symbol() {
    static constexpr std::array<std::string_view, 25> kSymbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view symbol : kSymbols) {
      if (!has(symbol)) continue;
      const char c = symbol[0];
      if (c == '(') brackets_ += ')';
      if (c == '[') brackets_ += ']';
      if (c == '{') brackets_ += '}';
      if (c == ')' || c == ']' || c == '}') {
        if (brackets_.empty() || brackets_.back() != c) refuse("unexpected '{}'", c);
        brackets_.pop_back();
      }
      return put(TokenKind::symbol, symbol.size());
    }
    size_t width = 1;
    code_point(source_, at_, width);
    refuse("unexpected '{}'", printable(source_.substr(at_, width)));
  }

  const std::string source_;
  const std::string& origin_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::string brackets_;  // to be closed
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source, const std::string& origin) {
  if (!is_utf8(source)) fail(ErrorKind::usage, "{}: the template is not UTF-8", origin);
  return Lexer(plain_lines(source), origin).read();
}

}  // namespace tutti::chat
