// Parser of expressions, with Jinja's precedences.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/chat/syntax.h"
#include "tutti/chat/token_stream.h"

namespace tutti::chat {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  // One expression, or several with commas, which form a tuple; without `conditions`, "a if b" ends
  // after a. `ends` are the names that end a tuple, such as "in".
  ExpressionPtr parse_tuple(bool conditions = true,
                            std::initializer_list<std::string_view> ends = {});
  ExpressionPtr parse(bool conditions = true);
  // Filters after "{% set x |" or "{% filter": their operand is null.
  ExpressionPtr parse_block_filters(bool at_name);

 private:
  // One level of nesting, during its lifetime.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  static std::vector<ExpressionPtr> operands(ExpressionPtr a, ExpressionPtr b = nullptr);
  ExpressionPtr make(ExpressionKind kind, int line, std::vector<ExpressionPtr> items);
  void deepen(Expression& node) const;
  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_number(const Token& token);
  // expression_suffixes.cpp
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters(ExpressionPtr node);
  ExpressionPtr parse_filter(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_index();
  ExpressionPtr parse_call(ExpressionPtr callee);
  void parse_arguments(Expression& call);

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace tutti::chat
