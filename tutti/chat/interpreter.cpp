#include "tutti/chat/interpreter.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/chat/filters.h"
#include "tutti/chat/operators.h"

namespace tutti::chat {

class Interpreter::Entered {
 public:
  Entered(Interpreter& interpreter, ScopePtr outer)
      : interpreter_(interpreter), before_(interpreter.scope_) {
    interpreter.scope_ = std::make_shared<Scope>();
    interpreter.scope_->outer = std::move(outer);
  }
  explicit Entered(Interpreter& interpreter) : Entered(interpreter, interpreter.scope_) {}
  ~Entered() { interpreter_.scope_ = before_; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Interpreter& interpreter_;
  ScopePtr before_;
};

class Interpreter::Captured {
 public:
  explicit Captured(Interpreter& interpreter)
      : interpreter_(interpreter), before_(interpreter.output_) {
    interpreter.output_ = &text;
  }
  ~Captured() { interpreter_.output_ = before_; }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  Text text;

 private:
  Interpreter& interpreter_;
  Text* before_;
};

Interpreter::Interpreter(Context& context, const Variables& variables)
    : context_(context), scope_(std::make_shared<Scope>()), output_(&rendered_.text) {
  scope_->variables = variables;
  kept_scopes_.push_back(scope_);
}

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : kept_scopes_) scope->variables.clear();
  for (const auto& names : kept_names_) names->items.clear();
}

Rendered Interpreter::render(const Block& block) {
  execute(block);
  return std::move(rendered_);
}

void Interpreter::write(const Text& text) {
  context_.make(text.size());
  context_.grow(output_->size() + text.size());
  output_->append(text);
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const Statement& statement : block) {
    const Flow flow = execute(statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  context_.at(statement.line);
  context_.step();
  const Context::Level level(context_);
  switch (statement.kind) {
    case StatementKind::text: write(statement.text); break;
    case StatementKind::print: {
      const Value value = evaluate(*statement.expression);
      write(text_of(context_, value));
      break;
    }
    case StatementKind::condition: return run_condition(statement);
    case StatementKind::loop: return run_loop(statement);
    case StatementKind::set: assign(statement.target, evaluate(*statement.expression)); break;
    case StatementKind::set_block: run_set_block(statement); break;
    case StatementKind::macro: define_macro(statement); break;
    case StatementKind::filter_block: run_filter_block(statement); break;
    case StatementKind::with: return run_with(statement);
    case StatementKind::generation: return run_generation(statement);
    case StatementKind::leave: return Flow::leave;
    case StatementKind::next: return Flow::next;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_condition(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (is_true(evaluate(*branch.condition))) return execute(branch.body);
  }
  return execute(statement.other);
}

std::vector<Value> Interpreter::loop_items(const Statement& statement) {
  const auto all = items_of(context_, evaluate(*statement.expression));
  if (!statement.filter) return all->items;
  std::vector<Value> kept;
  for (const Value& item : all->items) {
    context_.step();
    const Entered scope(*this);
    assign(statement.target, item);
    if (is_true(evaluate(*statement.filter))) kept.push_back(item);
  }
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement) {
  auto loop = std::make_shared<Loop>();
  const Value items = make_list(context_, loop_items(statement));
  loop->items = std::get<std::shared_ptr<const Sequence>>(items.data);
  if (loop->items->items.empty()) {
    const Entered scope(*this);
    return execute(statement.other);
  }
  for (size_t i = 0; i < loop->items->items.size(); ++i) {
    context_.step();
    // Each iteration has its own variable: a captured one does not change.
    auto here = std::make_shared<Loop>(*loop);
    here->index = static_cast<int64_t>(i);
    const Entered scope(*this);
    set("loop", Value(std::move(here)));
    const Flow flow = run_item(statement, loop->items->items[i]);
    if (flow == Flow::leave) break;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_item(const Statement& statement, const Value& item) {
  assign(statement.target, item);
  const int message = item.dict() == nullptr ? -1 : item.dict()->message;
  const bool counts = message >= 0 && output_ == &rendered_.text;
  const size_t begin = rendered_.text.size();
  const Flow flow = execute(statement.body);
  const size_t end = rendered_.text.size();
  if (counts && end > begin) rendered_.messages.push_back({message, begin, end});
  return flow;
}

Interpreter::Flow Interpreter::run_with(const Statement& statement) {
  std::vector<Value> values;
  for (const auto& [target, expression] : statement.assignments) {
    values.push_back(evaluate(*expression));
  }
  const Entered scope(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  return execute(statement.body);
}

Interpreter::Flow Interpreter::run_generation(const Statement& statement) {
  const Entered scope(*this);
  const size_t begin = rendered_.text.size();
  const size_t before = output_->size();
  const Flow flow = execute(statement.body);
  rendered_.generated.push_back({begin, begin + output_->size() - before});
  return flow;
}

Text Interpreter::captured(const Block& block) {
  Captured output(*this);
  execute(block);
  return std::move(output.text);
}

Value Interpreter::filtered(const Expression* filter, Value operand) {
  if (filter == nullptr) return operand;
  const Value* const before = std::exchange(block_operand_, &operand);
  Value out = evaluate(*filter);
  block_operand_ = before;
  return out;
}

void Interpreter::run_set_block(const Statement& statement) {
  Text text;
  {
    const Entered scope(*this);
    text = captured(statement.body);
  }
  assign(statement.target, filtered(statement.filter.get(), Value(std::move(text))));
}

void Interpreter::run_filter_block(const Statement& statement) {
  const Entered scope(*this);
  Text text = captured(statement.body);
  write(text_of(context_, filtered(statement.filter.get(), Value(std::move(text)))));
}

void Interpreter::define_macro(const Statement& statement) {
  kept_scopes_.push_back(scope_);
  context_.make_items(4);
  // The scope owns the macro, so the macro only has a weak pointer to it.
  const Scope* scope = scope_.get();
  const auto call = [this, &statement, scope](Arguments& arguments) {
    const auto kept = std::find_if(kept_scopes_.begin(), kept_scopes_.end(),
                                   [&](const ScopePtr& other) { return other.get() == scope; });
    TUTTI_CHECK(kept != kept_scopes_.end(), "the scope of macro {}", statement.name);
    return call_macro(statement, *kept, arguments);
  };
  set(statement.name, Value(Function{statement.name, call}));
}

Value Interpreter::call_macro(const Statement& macro, const ScopePtr& scope, Arguments& arguments) {
  const Context::Level level(context_);
  const Entered entered(*this, scope);
  if (arguments.positional.size() > macro.parameters.size()) {
    context_.refuse("the macro '{}' takes {} arguments, not {}", macro.name,
                    macro.parameters.size(), arguments.positional.size());
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find_if(
        macro.parameters.begin(), macro.parameters.end(),
        [&, &name = name](const Parameter& parameter) { return parameter.name == name; });
    if (found == macro.parameters.end()) {
      context_.refuse("the macro '{}' has no parameter '{}'", macro.name, name);
    }
    if (found - macro.parameters.begin() <
        static_cast<std::ptrdiff_t>(arguments.positional.size())) {
      context_.refuse("the macro '{}' gets '{}' twice", macro.name, name);
    }
  }
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& item) { return item.first == parameter.name; });
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (named != arguments.named.end()) {
      value = named->second;
    } else if (parameter.fallback) {
      value = evaluate(*parameter.fallback);
    } else {
      value = make_undefined(fmt::format("the parameter '{}' of the macro '{}' was not given",
                                         parameter.name, macro.name));
    }
    set(parameter.name, std::move(value));
  }
  return make_text(context_, captured(macro.body));
}

void Interpreter::set(const std::string& name, Value value) {
  for (auto& variable : scope_->variables) {
    if (variable.first != name) continue;
    variable.second = std::move(value);
    return;
  }
  context_.step(static_cast<int64_t>(scope_->variables.size()) / 8);
  scope_->variables.emplace_back(name, std::move(value));
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const auto items = items_of(context_, value);
    if (items->items.size() != target.parts.size()) {
      context_.refuse("cannot unpack {} values into {} variables", items->items.size(),
                      target.parts.size());
    }
    for (size_t i = 0; i < target.parts.size(); ++i) assign(target.parts[i], items->items[i]);
    return;
  }
  if (target.attribute.empty()) return set(target.name, value);
  const Value object = look_up(target.name);
  Namespace* names = object.names();
  if (names == nullptr) {
    context_.refuse("cannot set '{}.{}': '{}' is of type {}, not a namespace", target.name,
                    target.attribute, target.name, type_name(object));
  }
  if (target.attribute.starts_with("_")) {
    context_.refuse("'{}': names of a namespace do not start with '_'", target.attribute);
  }
  for (auto& item : names->items) {
    if (item.first != target.attribute) continue;
    item.second = value;
    return;
  }
  context_.make_items(2);
  names->items.emplace_back(target.attribute, value);
}

}  // namespace tutti::chat
