#include "tutti/chat/expression_parser.h"

#include <algorithm>
#include <charconv>

#include "tutti/chat/parser.h"

namespace tutti::chat {

namespace {

constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ <= kMostSyntaxDepth) return;
  --parser_.depth_;
  parser_.tokens_.refuse(parser_.tokens_.line(), "expressions are nested more than {} deep",
                         kMostSyntaxDepth);
}

std::vector<ExpressionPtr> ExpressionParser::operands(ExpressionPtr a, ExpressionPtr b) {
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(a));
  if (b) items.push_back(std::move(b));
  return items;
}

// A chain such as a + b + c is as deep as it is long.
void ExpressionParser::deepen(Expression& node) const {
  int inner = 0;
  for (const ExpressionPtr& item : node.items) inner = std::max(inner, item ? item->depth : 0);
  for (const auto& [name, item] : node.named) inner = std::max(inner, item->depth);
  node.depth = inner + 1;
  if (node.depth > kMostSyntaxDepth) {
    tokens_.refuse(node.line, "an expression has more than {} parts in a chain", kMostSyntaxDepth);
  }
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, int line,
                                     std::vector<ExpressionPtr> items) {
  auto node = std::make_unique<Expression>(Expression{kind});
  node->line = line;
  node->items = std::move(items);
  deepen(*node);
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple(bool conditions,
                                            std::initializer_list<std::string_view> ends) {
  const int line = tokens_.line();
  const auto at_end = [&] {
    return tokens_.is(TokenKind::print_end) || tokens_.is(TokenKind::block_end) ||
           tokens_.is_symbol(")") || tokens_.is_name_of(ends);
  };
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!at_end()) {
    items.push_back(parse(conditions));
    if (!tokens_.skip_symbol(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return make(ExpressionKind::tuple, line, std::move(items));
  if (items.empty()) tokens_.unexpected("an expression");
  return std::move(items.front());
}

ExpressionPtr ExpressionParser::parse(bool conditions) {
  const Nested nested(*this);
  return conditions ? parse_condition() : parse_or();
}

ExpressionPtr ExpressionParser::parse_condition() {
  const int line = tokens_.line();
  ExpressionPtr node = parse_or();
  while (tokens_.skip_name("if")) {
    std::vector<ExpressionPtr> items = operands(std::move(node), parse_or());
    if (tokens_.skip_name("else")) {
      const Nested nested(*this);
      items.push_back(parse_condition());
    } else {
      items.push_back(nullptr);
    }
    node = make(ExpressionKind::condition, line, std::move(items));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_or() {
  const int line = tokens_.line();
  ExpressionPtr node = parse_and();
  while (tokens_.skip_name("or")) {
    node = make(ExpressionKind::logical_or, line, operands(std::move(node), parse_and()));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_and() {
  const int line = tokens_.line();
  ExpressionPtr node = parse_not();
  while (tokens_.skip_name("and")) {
    node = make(ExpressionKind::logical_and, line, operands(std::move(node), parse_not()));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_not() {
  const Nested nested(*this);
  const int line = tokens_.line();
  if (!tokens_.skip_name("not")) return parse_compare();
  return make(ExpressionKind::logical_not, line, operands(parse_not()));
}

ExpressionPtr ExpressionParser::parse_compare() {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> items = operands(parse_sum());
  std::vector<std::string> operators;
  for (;;) {
    const Token& token = tokens_.peek();
    if (token.kind == TokenKind::symbol &&
        std::find(std::begin(kComparisons), std::end(kComparisons), token.text) !=
            std::end(kComparisons)) {
      operators.push_back(tokens_.take().text);
    } else if (tokens_.skip_name("in")) {
      operators.emplace_back("in");
    } else if (tokens_.is_name("not") && tokens_.is_name("in", 1)) {
      tokens_.take();
      tokens_.take();
      operators.emplace_back("not in");
    } else {
      break;
    }
    items.push_back(parse_sum());
  }
  if (operators.empty()) return std::move(items.front());
  ExpressionPtr node = make(ExpressionKind::compare, line, std::move(items));
  node->operators = std::move(operators);
  return node;
}

ExpressionPtr ExpressionParser::parse_sum() {
  const int line = tokens_.line();
  ExpressionPtr node = parse_concat();
  while (tokens_.is_symbol("+") || tokens_.is_symbol("-")) {
    const std::string symbol = tokens_.take().text;
    node = make(ExpressionKind::binary, line, operands(std::move(node), parse_concat()));
    node->name = symbol;
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> items = operands(parse_product());
  while (tokens_.skip_symbol("~")) items.push_back(parse_product());
  if (items.size() == 1) return std::move(items.front());
  return make(ExpressionKind::concat, line, std::move(items));
}

ExpressionPtr ExpressionParser::parse_product() {
  const int line = tokens_.line();
  ExpressionPtr node = parse_power();
  while (tokens_.is_symbol("*") || tokens_.is_symbol("/") || tokens_.is_symbol("//") ||
         tokens_.is_symbol("%")) {
    const std::string symbol = tokens_.take().text;
    node = make(ExpressionKind::binary, line, operands(std::move(node), parse_power()));
    node->name = symbol;
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_power() {
  const int line = tokens_.line();
  ExpressionPtr node = parse_unary(true);
  while (tokens_.skip_symbol("**")) {
    node = make(ExpressionKind::binary, line, operands(std::move(node), parse_unary(true)));
    node->name = "**";
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_unary(bool filters) {
  const Nested nested(*this);
  const int line = tokens_.line();
  ExpressionPtr node;
  if (tokens_.is_symbol("-") || tokens_.is_symbol("+")) {
    const bool negative = tokens_.take().text == "-";
    node = make(negative ? ExpressionKind::negative : ExpressionKind::positive, line,
                operands(parse_unary(false)));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_number(const Token& token) {
  ExpressionPtr node = make(ExpressionKind::literal, token.line, {});
  std::string digits = token.text;
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const char* end = digits.data() + digits.size();
  if (token.kind == TokenKind::real) {
    double value = 0;
    if (std::from_chars(digits.data(), end, value).ec != std::errc()) {
      tokens_.refuse(token.line, "the number {} is out of range", token.text);
    }
    node->value = Value(value);
    return node;
  }
  int64_t value = 0;
  if (std::from_chars(digits.data(), end, value).ec != std::errc()) {
    tokens_.refuse(token.line, "the number {} has more than 64 bits", token.text);
  }
  node->value = Value(value);
  return node;
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token token = tokens_.peek();
  switch (token.kind) {
    case TokenKind::name: {
      tokens_.take();
      const std::string& name = token.text;
      ExpressionPtr node = make(ExpressionKind::literal, token.line, {});
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        node->value = Value(name == "true" || name == "True");
      } else if (name == "none" || name == "None") {
        node->value = Value(nullptr);
      } else {
        node->kind = ExpressionKind::variable;
        node->name = name;
      }
      return node;
    }
    case TokenKind::text: {
      ExpressionPtr node = make(ExpressionKind::literal, token.line, {});
      std::string text;
      while (tokens_.is(TokenKind::text)) text += tokens_.take().text;
      node->value = Value(Text(text));
      return node;
    }
    case TokenKind::integer:
    case TokenKind::real: return parse_number(tokens_.take());
    default: break;
  }
  if (tokens_.is_symbol("[")) return parse_list();
  if (tokens_.is_symbol("{")) return parse_dict();
  if (!tokens_.skip_symbol("(")) tokens_.unexpected("an expression");
  if (tokens_.skip_symbol(")")) return make(ExpressionKind::tuple, token.line, {});
  ExpressionPtr node = parse_tuple();
  tokens_.expect_symbol(")");
  return node;
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = tokens_.take().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.is_symbol("]")) {
    if (!items.empty()) tokens_.expect_symbol(",");
    if (tokens_.is_symbol("]")) break;
    items.push_back(parse());
  }
  tokens_.expect_symbol("]");
  return make(ExpressionKind::list, line, std::move(items));
}

ExpressionPtr ExpressionParser::parse_dict() {
  const int line = tokens_.take().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.is_symbol("}")) {
    if (!items.empty()) tokens_.expect_symbol(",");
    if (tokens_.is_symbol("}")) break;
    items.push_back(parse());
    tokens_.expect_symbol(":");
    items.push_back(parse());
  }
  tokens_.expect_symbol("}");
  return make(ExpressionKind::dict, line, std::move(items));
}

}  // namespace tutti::chat
