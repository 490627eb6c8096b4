// Evaluation of a template's expressions by Interpreter.
#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/chat/arithmetic.h"
#include "tutti/chat/filters.h"
#include "tutti/chat/functions.h"
#include "tutti/chat/interpreter.h"
#include "tutti/chat/methods.h"
#include "tutti/chat/operators.h"
#include "tutti/chat/predicates.h"

namespace tutti::chat {

Value Interpreter::look_up(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return value;
    }
  }
  const auto make_namespace = [this] {
    kept_names_.push_back(std::make_shared<Namespace>());
    return kept_names_.back();
  };
  if (auto function = find_function(context_, name, make_namespace)) return std::move(*function);
  return make_undefined("'" + name + "' is undefined");
}

Value Interpreter::evaluate(const Expression& node) {
  context_.at(node.line);
  context_.step();
  const Context::Level level(context_);
  return evaluate_node(node);
}

Value Interpreter::evaluate_or_none(const Expression* node) {
  return node == nullptr ? Value(nullptr) : evaluate(*node);
}

std::vector<Value> Interpreter::evaluate_all(const Expression& node, size_t first) {
  std::vector<Value> values;
  for (size_t i = first; i < node.items.size(); ++i) values.push_back(evaluate(*node.items[i]));
  return values;
}

Value Interpreter::evaluate_node(const Expression& node) {
  const auto operand = [&](size_t index) { return evaluate(*node.items[index]); };
  switch (node.kind) {
    case ExpressionKind::literal: return node.value;
    case ExpressionKind::variable: return look_up(node.name);
    case ExpressionKind::list: return make_list(context_, evaluate_all(node, 0));
    case ExpressionKind::tuple:
      return make_list(context_, evaluate_all(node, 0), SequenceKind::tuple);
    case ExpressionKind::dict: return make_dict(node);
    case ExpressionKind::attribute: return get_attribute(context_, operand(0), node.name);
    case ExpressionKind::item: return run_item_access(node);
    case ExpressionKind::slice: context_.refuse("a slice outside its brackets");
    case ExpressionKind::call: return run_call(node);
    case ExpressionKind::filter: return run_filter(node);
    case ExpressionKind::test: return run_test(node);
    case ExpressionKind::negative: return negative(context_, operand(0));
    case ExpressionKind::positive: return negative(context_, negative(context_, operand(0)));
    case ExpressionKind::logical_not: return Value(!is_true(operand(0)));
    case ExpressionKind::logical_and: {
      Value left = operand(0);
      return is_true(left) ? operand(1) : left;
    }
    case ExpressionKind::logical_or: {
      Value left = operand(0);
      return is_true(left) ? left : operand(1);
    }
    case ExpressionKind::compare: return run_compare(node);
    case ExpressionKind::binary: {
      const Value left = operand(0);
      const Value right = operand(1);
      context_.at(node.line);
      return binary(context_, node.name, left, right);
    }
    case ExpressionKind::concat: return run_concat(node);
    case ExpressionKind::condition:
      if (is_true(operand(1))) return operand(0);
      if (node.items[2] != nullptr) return operand(2);
      return make_undefined("the condition is false, and there is no 'else'");
  }
  check_failed(__FILE__, __LINE__, "known expression", "");
}

Value Interpreter::make_dict(const Expression& node) {
  Dict dict;
  for (size_t i = 0; i < node.items.size(); i += 2) {
    Value key = evaluate(*node.items[i]);
    if (key.dict() != nullptr || key.names() != nullptr ||
        (key.sequence() != nullptr && key.sequence()->kind == SequenceKind::list)) {
      context_.refuse("a key of a dict is of type {}", type_name(key));
    }
    context_.step(static_cast<int64_t>(dict.items.size()));
    dict.set(std::move(key), evaluate(*node.items[i + 1]));
  }
  context_.make_items(2 * dict.items.size());
  return Value(std::move(dict));
}

Value Interpreter::run_compare(const Expression& node) {
  Value left = evaluate(*node.items[0]);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.items[i + 1]);
    if (!compare(context_, node.operators[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::run_concat(const Expression& node) {
  Text out;
  for (const Value& value : evaluate_all(node, 0)) out.append(text_of(context_, value));
  return make_text(context_, std::move(out));
}

Value Interpreter::run_item_access(const Expression& node) {
  const Value object = evaluate(*node.items[0]);
  const Expression& key = *node.items[1];
  if (key.kind != ExpressionKind::slice) {
    const Value found = evaluate(key);
    context_.at(node.line);
    return get_item(context_, object, found);
  }
  const Value start = evaluate_or_none(key.items[0].get());
  const Value stop = evaluate_or_none(key.items[1].get());
  const Value step = evaluate_or_none(key.items[2].get());
  context_.at(node.line);
  return get_slice(context_, object, start, stop, step);
}

Arguments Interpreter::arguments_of(const Expression& node) {
  Arguments arguments;
  arguments.positional = evaluate_all(node, 1);
  for (const auto& [name, expression] : node.named) {
    arguments.named.emplace_back(name, evaluate(*expression));
  }
  context_.at(node.line);
  return arguments;
}

Value Interpreter::run_call(const Expression& node) {
  const Value callee = evaluate(*node.items[0]);
  if (callee.is_undefined()) {
    const auto& what = std::get<Undefined>(callee.data).what;
    context_.refuse("{}, and cannot be called", what == nullptr ? "a value is undefined" : *what);
  }
  if (callee.loop() != nullptr) context_.unsupported("a recursive loop");
  const Function* function = callee.function();
  if (function == nullptr)
    context_.refuse("a value of type {} cannot be called", type_name(callee));
  Arguments arguments = arguments_of(node);
  return function->call(arguments);
}

Value Interpreter::run_filter(const Expression& node) {
  TUTTI_CHECK(node.items[0] != nullptr || block_operand_ != nullptr, "filter {}", node.name);
  const Value operand = node.items[0] == nullptr ? *block_operand_ : evaluate(*node.items[0]);
  Arguments arguments = arguments_of(node);
  return apply_filter(context_, node.name, operand, arguments);
}

Value Interpreter::run_test(const Expression& node) {
  const Value operand = evaluate(*node.items[0]);
  Arguments arguments = arguments_of(node);
  return Value(apply_test(context_, node.name, operand, arguments) != node.negated);
}

}  // namespace tutti::chat
