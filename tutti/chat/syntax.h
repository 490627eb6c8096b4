// A template after parsing: statements and expressions as plain trees.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/chat/value.h"

namespace tutti::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  literal,    // value
  variable,   // name
  list,       // items
  tuple,      // items
  dict,       // items: key, value, key, value ...
  attribute,  // items[0].name
  item,       // items[0][items[1]]
  slice,      // items: start, stop, step, each may be null
  call,       // items[0](items[1], ..., named)
  filter,     // items[0] | name(items[1], ..., named); items[0] may be null: the text of a block
  test,       // items[0] is name(items[1], ...); negated
  negative,
  positive,
  logical_not,
  logical_and,
  logical_or,
  compare,    // items[0] operators[0] items[1] operators[1] ...
  binary,     // items[0] name items[1]; name: + - * / // % **
  concat,     // items, joined by ~
  condition,  // items: value if true, condition, else (may be null)
};

struct Expression {
  ExpressionKind kind;
  int line = 0;
  int depth = 1;
  Value value = {};
  std::string name = {};
  std::vector<ExpressionPtr> items = {};
  std::vector<std::string> operators = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  bool negated = false;
};

// What a value is given to: a variable, an attribute of a namespace, or several of them.
struct Target {
  std::string name = {};
  std::string attribute = {};
  std::vector<Target> parts = {};
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<Statement>;

enum class StatementKind {
  text,
  print,         // expression
  condition,     // branches, other
  loop,          // target, expression, filter, body, other
  set,           // target, expression
  set_block,     // target, filter (may be null), body
  macro,         // name, parameters, body
  filter_block,  // filter, body
  with,          // assignments, body
  generation,    // body
  leave,         // break
  next,          // continue
};

struct Branch {
  ExpressionPtr condition;
  Block body;
};
struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // or null
};

struct Statement {
  StatementKind kind;
  int line = 0;
  Text text = {};
  std::string name = {};
  ExpressionPtr expression = {};
  ExpressionPtr filter = {};  // of a loop: selects items
  Target target = {};
  std::vector<Parameter> parameters = {};
  std::vector<std::pair<Target, ExpressionPtr>> assignments = {};
  std::vector<Branch> branches = {};
  Block body = {};
  Block other = {};  // else
};

}  // namespace tutti::chat
