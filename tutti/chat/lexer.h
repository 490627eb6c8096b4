// Splits a template into tokens, with the white space control of Jinja as set up by transformers:
// trim_blocks and lstrip_blocks on, one line break at the end of the source removed. Source:
// Jinja's "Template Designer Documentation", Whitespace Control.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::chat {

enum class TokenKind {
  data,
  print_begin,
  print_end,
  block_begin,
  block_end,
  name,
  text,
  integer,
  real,
  symbol,
  end
};

struct Token {
  TokenKind kind;
  std::string text;  // `text` after its escapes
  int line = 0;
};

// `source` is UTF-8. Throws usage naming `origin` and the line. The last token is `end`.
std::vector<Token> read_tokens(std::string_view source, const std::string& origin);

}  // namespace tutti::chat
