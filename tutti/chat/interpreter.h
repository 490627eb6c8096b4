// Executes the statements of a template. An object renders once.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/chat/context.h"
#include "tutti/chat/syntax.h"
#include "tutti/chat/template.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

class Interpreter {
 public:
  Interpreter(Context& context, const Variables& variables);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Rendered render(const Block& block);

 private:
  struct Scope {
    std::vector<std::pair<std::string, Value>> variables;
    std::shared_ptr<Scope> outer;
  };
  using ScopePtr = std::shared_ptr<Scope>;
  enum class Flow { normal, leave, next };
  class Entered;   // another scope, during its lifetime
  class Captured;  // another output, during its lifetime

  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow run_condition(const Statement& statement);
  Flow run_loop(const Statement& statement);
  Flow run_item(const Statement& statement, const Value& item);
  Flow run_with(const Statement& statement);
  Flow run_generation(const Statement& statement);
  void run_set_block(const Statement& statement);
  void run_filter_block(const Statement& statement);
  void define_macro(const Statement& statement);
  Value call_macro(const Statement& macro, const ScopePtr& scope, Arguments& arguments);
  Text captured(const Block& block);
  Value filtered(const Expression* filter, Value operand);
  std::vector<Value> loop_items(const Statement& statement);

  void write(const Text& text);
  void assign(const Target& target, const Value& value);
  void set(const std::string& name, Value value);
  Value look_up(const std::string& name);

  Value evaluate(const Expression& node);
  Value evaluate_node(const Expression& node);
  Value evaluate_or_none(const Expression* node);
  std::vector<Value> evaluate_all(const Expression& node, size_t first);
  Value make_dict(const Expression& node);
  Value run_compare(const Expression& node);
  Value run_concat(const Expression& node);
  Value run_item_access(const Expression& node);
  Value run_call(const Expression& node);
  Value run_filter(const Expression& node);
  Value run_test(const Expression& node);
  Arguments arguments_of(const Expression& node);

  Context& context_;
  ScopePtr scope_;
  Text* output_;
  Rendered rendered_;
  const Value* block_operand_ = nullptr;  // of filters without one
  // Values that a template can link into cycles or long chains; destroyed one by one at the end.
  std::vector<ScopePtr> kept_scopes_;
  std::vector<std::shared_ptr<Namespace>> kept_names_;
};

}  // namespace tutti::chat
