#include "tutti/chat/predicates.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tutti/base/text.h"
#include "tutti/chat/operators.h"

namespace tutti::chat {
namespace {

bool is_sequence(const Value& value) {
  if (value.is_undefined() || value.text() != nullptr || value.dict() != nullptr) return true;
  const Sequence* list = value.sequence();
  return list != nullptr && list->kind != SequenceKind::iterator &&
         list->kind != SequenceKind::view;
}

// The same object, or an equal one of types without identity here.
bool is_same(const Value& a, const Value& b) {
  if (a.data.index() != b.data.index()) return false;
  if (a.dict() != nullptr) return a.dict() == b.dict();
  if (a.sequence() != nullptr) return a.sequence() == b.sequence();
  return is_equal(a, b);
}

struct PlainTest {
  std::string_view name;
  bool (*holds)(const Value&);
};
constexpr PlainTest kPlainTests[] = {
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"string", [](const Value& v) { return v.text() != nullptr; }},
    {"mapping", [](const Value& v) { return v.dict() != nullptr; }},
    {"iterable",
     [](const Value& v) {
       return v.is_undefined() || v.text() != nullptr || v.dict() != nullptr ||
              v.sequence() != nullptr;
     }},
    {"sequence", is_sequence},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"integer", [](const Value& v) { return v.integer() && v.boolean() == nullptr; }},
    {"float", [](const Value& v) { return v.is_number() && !v.integer(); }},
    {"boolean", [](const Value& v) { return v.boolean() != nullptr; }},
    {"true", [](const Value& v) { return v.boolean() != nullptr && *v.boolean(); }},
    {"false", [](const Value& v) { return v.boolean() != nullptr && !*v.boolean(); }},
    {"callable", [](const Value& v) { return v.function() != nullptr; }},
};

// Comparisons of two values, with the names that Jinja has for them.
struct Comparison {
  std::string_view name, symbol;
};
constexpr Comparison kComparisonTests[] = {
    {"eq", "=="}, {"equalto", "=="}, {"==", "=="},      {"ne", "!="},
    {"!=", "!="}, {"lt", "<"},       {"lessthan", "<"}, {"<", "<"},
    {"le", "<="}, {"<=", "<="},      {"gt", ">"},       {"greaterthan", ">"},
    {">", ">"},   {"ge", ">="},      {">=", ">="},      {"in", "in"},
};

// operand % divisor, as in Python.
double rest_of(Context& context, const std::string& name, const Value& operand, int64_t divisor) {
  if (!operand.is_number()) {
    context.refuse("the test '{}' requires a number, not {}", name, type_name(operand));
  }
  return binary(context, "%", operand, Value(divisor)).real();
}

}  // namespace

bool apply_test(Context& context, const std::string& name, const Value& operand,
                Arguments& arguments) {
  context.step();
  ArgumentReader reader(context, name, arguments);
  for (const PlainTest& test : kPlainTests) {
    if (test.name != name) continue;
    reader.done();
    return test.holds(operand);
  }
  for (const Comparison& test : kComparisonTests) {
    if (test.name != name) continue;
    const Value other = reader.required("other");
    reader.done();
    return compare(context, std::string(test.symbol), operand, other);
  }
  if (name == "sameas") {
    const Value other = reader.required("other");
    reader.done();
    return is_same(operand, other);
  }
  if (name == "odd" || name == "even") {
    reader.done();
    return rest_of(context, name, operand, 2) == (name == "odd" ? 1 : 0);
  }
  if (name == "divisibleby") {
    const auto divisor = reader.integer("num");
    reader.done();
    return rest_of(context, name, operand, divisor.value_or(0)) == 0;
  }
  if (name == "lower" || name == "upper") {
    reader.done();
    return is_all(text_of(context, operand).bytes,
                  name == "lower" ? TextClass::lower : TextClass::upper);
  }
  if (name == "escaped" || name == "filter" || name == "test") {
    context.unsupported("the test '" + name + "'");
  }
  std::vector<std::string> names;
  for (const PlainTest& test : kPlainTests) names.emplace_back(test.name);
  for (const Comparison& test : kComparisonTests) names.emplace_back(test.name);
  const std::string nearest = nearest_word(name, names);
  context.refuse("unknown test '{}'{}", name,
                 nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

}  // namespace tutti::chat
