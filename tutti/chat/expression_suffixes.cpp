// Suffixes of an operand: members, items, calls, filters and tests.
#include "tutti/chat/expression_parser.h"

namespace tutti::chat {

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  for (;;) {
    if (tokens_.is_symbol(".") || tokens_.is_symbol("[")) {
      node = parse_subscript(std::move(node));
    } else if (tokens_.is_symbol("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr node) {
  for (;;) {
    if (tokens_.skip_symbol("|")) {
      node = parse_filter(std::move(node));
    } else if (tokens_.skip_name("is")) {
      node = parse_test(std::move(node));
    } else if (tokens_.is_symbol("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  ExpressionPtr call = make(ExpressionKind::call, tokens_.line(), operands(std::move(callee)));
  parse_arguments(*call);
  return call;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr operand) {
  const int line = tokens_.line();
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::filter});
  node->line = line;
  node->name = tokens_.expect_name();
  node->items.push_back(std::move(operand));
  if (tokens_.is_symbol("(")) parse_arguments(*node);
  deepen(*node);
  return node;
}

ExpressionPtr ExpressionParser::parse_block_filters(bool at_name) {
  ExpressionPtr node;
  if (at_name) node = parse_filter(nullptr);
  while (tokens_.skip_symbol("|")) node = parse_filter(std::move(node));
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr operand) {
  const int line = tokens_.line();
  const bool negated = tokens_.skip_name("not");
  const std::string name = tokens_.expect_name();
  ExpressionPtr node = make(ExpressionKind::test, line, operands(std::move(operand)));
  node->name = name;
  node->negated = negated;
  const TokenKind kind = tokens_.peek().kind;
  if (tokens_.is_symbol("(")) {
    parse_arguments(*node);
  } else if ((kind == TokenKind::name || kind == TokenKind::text || kind == TokenKind::integer ||
              kind == TokenKind::real || tokens_.is_symbol("[") || tokens_.is_symbol("{")) &&
             !tokens_.is_name_of({"else", "or", "and"})) {
    if (tokens_.is_name("is")) tokens_.refuse(line, "tests with 'is' cannot be chained");
    const Nested nested(*this);
    node->items.push_back(parse_postfix(parse_primary()));
  }
  deepen(*node);
  return node;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr node) {
  const Token token = tokens_.take();
  if (token.text == ".") {
    if (tokens_.is(TokenKind::integer)) {
      ExpressionPtr index = parse_number(tokens_.take());
      return make(ExpressionKind::item, token.line, operands(std::move(node), std::move(index)));
    }
    ExpressionPtr out = make(ExpressionKind::attribute, token.line, operands(std::move(node)));
    out->name = tokens_.expect_name();
    return out;
  }
  std::vector<ExpressionPtr> parts;
  while (!tokens_.is_symbol("]")) {
    if (!parts.empty()) tokens_.expect_symbol(",");
    parts.push_back(parse_index());
  }
  tokens_.expect_symbol("]");
  ExpressionPtr index = parts.size() == 1
                            ? std::move(parts.front())
                            : make(ExpressionKind::tuple, token.line, std::move(parts));
  return make(ExpressionKind::item, token.line, operands(std::move(node), std::move(index)));
}

ExpressionPtr ExpressionParser::parse_index() {
  const int line = tokens_.line();
  const auto at_end = [&] {
    return tokens_.is_symbol("]") || tokens_.is_symbol(",") || tokens_.is_symbol(":");
  };
  std::vector<ExpressionPtr> parts;
  if (tokens_.is_symbol(":")) {
    parts.push_back(nullptr);
  } else {
    parts.push_back(parse());
    if (!tokens_.is_symbol(":")) return std::move(parts.front());
  }
  while (parts.size() < 3) {
    if (tokens_.skip_symbol(":") && !at_end()) {
      parts.push_back(parse());
    } else {
      parts.push_back(nullptr);
    }
  }
  return make(ExpressionKind::slice, line, std::move(parts));
}

void ExpressionParser::parse_arguments(Expression& call) {
  tokens_.expect_symbol("(");
  bool first = true;
  while (!tokens_.is_symbol(")")) {
    if (!first) tokens_.expect_symbol(",");
    first = false;
    if (tokens_.is_symbol(")")) break;
    if (tokens_.is_symbol("*") || tokens_.is_symbol("**")) {
      tokens_.unsupported(tokens_.line(), "'" + tokens_.peek().text + "' before an argument");
    }
    if (tokens_.is(TokenKind::name) && tokens_.is_symbol("=", 1)) {
      const std::string name = tokens_.take().text;
      tokens_.take();
      call.named.emplace_back(name, parse());
      continue;
    }
    if (!call.named.empty()) {
      tokens_.refuse(tokens_.line(), "a positional argument follows '{}='",
                     call.named.back().first);
    }
    call.items.push_back(parse());
  }
  tokens_.expect_symbol(")");
  deepen(call);
}

}  // namespace tutti::chat
