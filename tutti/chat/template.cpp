#include "tutti/chat/template.h"

#include "tutti/base/clock.h"
#include "tutti/chat/interpreter.h"
#include "tutti/chat/parser.h"
#include "tutti/chat/syntax.h"

namespace tutti::chat {

struct Template::Parsed {
  std::string origin;
  Block block;
  std::vector<std::string> literals;
  bool has_generation = false;
};

namespace {

// Literal text of a template, and whether it contains {% generation %}.
class Survey {
 public:
  std::vector<std::string> literals;
  bool has_generation = false;

  void add(const Block& block) {
    for (const Statement& statement : block) add(statement);
  }

 private:
  void add(const Statement& statement) {
    has_generation = has_generation || statement.kind == StatementKind::generation;
    if (!statement.text.empty()) literals.push_back(statement.text.bytes);
    add(statement.expression.get());
    add(statement.filter.get());
    for (const Parameter& parameter : statement.parameters) add(parameter.fallback.get());
    for (const auto& assignment : statement.assignments) add(assignment.second.get());
    for (const Branch& branch : statement.branches) {
      add(branch.condition.get());
      add(branch.body);
    }
    add(statement.body);
    add(statement.other);
  }
  void add(const Expression* node) {
    if (node == nullptr) return;
    if (const Text* text = node->value.text()) literals.push_back(text->bytes);
    for (const ExpressionPtr& item : node->items) add(item.get());
    for (const auto& named : node->named) add(named.second.get());
  }
};

}  // namespace

Template::Template(std::string_view source, std::string origin) {
  auto parsed = std::make_unique<Parsed>();
  parsed->origin = std::move(origin);
  parsed->block = parse_template(source, parsed->origin);
  Survey survey;
  survey.add(parsed->block);
  parsed->literals = std::move(survey.literals);
  parsed->has_generation = survey.has_generation;
  parsed_ = std::move(parsed);
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

const std::string& Template::origin() const { return parsed_->origin; }
bool Template::has_generation() const { return parsed_->has_generation; }
const std::vector<std::string>& Template::literals() const { return parsed_->literals; }

Rendered Template::render(const Variables& variables, const RenderOptions& options) const {
  Context context(parsed_->origin, options.limits, options.now_seconds.value_or(wall_seconds()));
  Interpreter interpreter(context, variables);
  return interpreter.render(parsed_->block);
}

}  // namespace tutti::chat
