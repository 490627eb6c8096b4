// The token sequence of a template, for its parsers.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/chat/lexer.h"

namespace tutti::chat {

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, const std::string& origin)
      : tokens_(std::move(tokens)), origin_(origin) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return peek().line; }
  Token take() {
    Token token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool is(TokenKind kind) const { return peek().kind == kind; }
  bool is_symbol(std::string_view symbol, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::symbol && peek(ahead).text == symbol;
  }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::name && peek(ahead).text == name;
  }
  bool is_name_of(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      if (is_name(name)) return true;
    }
    return false;
  }
  bool skip_symbol(std::string_view symbol) { return is_symbol(symbol) && (take(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (take(), true); }

  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) unexpected(symbol);
  }
  void expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) unexpected(what);
    take();
  }
  std::string expect_name() {
    if (!is(TokenKind::name)) unexpected("a name");
    return take().text;
  }

  // Refuses the current token, where `wanted` was expected.
  [[noreturn]] void unexpected(std::string_view wanted) const {
    refuse(line(), "{} where {} was expected", describe(peek()), wanted);
  }
  template <typename... Args>
  [[noreturn]] void refuse(int line, fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::usage, "{}:{}: {}", origin_, line,
         fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void unsupported(int line, const std::string& what) const {
    fail(ErrorKind::unsupported, "{}:{}: {} is not supported in chat templates here", origin_, line,
         what);
  }

 private:
  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::data: return "text";
      case TokenKind::print_begin: return "'{{'";
      case TokenKind::print_end: return "'}}'";
      case TokenKind::block_begin: return "'{%'";
      case TokenKind::block_end: return "'%}'";
      case TokenKind::text: return "a string";
      case TokenKind::end: return "the end of the template";
      default: return "'" + token.text + "'";
    }
  }

  std::vector<Token> tokens_;
  const std::string& origin_;
  size_t at_ = 0;
};

}  // namespace tutti::chat
