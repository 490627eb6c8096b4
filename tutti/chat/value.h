// Values of a template, as Python's: undefined, none, bool, int, float, str, list, tuple, range,
// iterator, dict, namespace, function. Immutable and shared, but for namespaces.
//
// Integers have 64 bits; overflow is an error. Lists and dicts are at most kMostNesting deep, which
// bounds the stack of recursive functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/chat/text.h"

namespace tutti::chat {

inline constexpr int kMostNesting = 100;

struct Value;
struct Sequence;
struct Dict;
struct Namespace;
struct Function;
struct Loop;

struct Undefined {
  std::shared_ptr<const std::string> what = nullptr;  // for errors: "'x' is undefined"
};

struct Value {
  using Data = std::variant<Undefined, std::nullptr_t, bool, int64_t, double,
                            std::shared_ptr<const Text>, std::shared_ptr<const Sequence>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Function>, std::shared_ptr<Loop>>;
  Data data;

  Value() = default;
  explicit Value(std::nullptr_t none) : data(none) {}
  explicit Value(bool value) : data(value) {}
  explicit Value(int64_t value) : data(value) {}
  explicit Value(double value) : data(value) {}
  explicit Value(Text value) : data(std::make_shared<const Text>(std::move(value))) {}
  explicit Value(Sequence value);
  explicit Value(Dict value);
  explicit Value(Function value);
  explicit Value(std::shared_ptr<const Sequence> value) : data(std::move(value)) {}
  explicit Value(std::shared_ptr<Namespace> value) : data(std::move(value)) {}
  explicit Value(std::shared_ptr<Loop> value) : data(std::move(value)) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(data); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(data); }
  const bool* boolean() const { return std::get_if<bool>(&data); }
  const Text* text() const;
  const Sequence* sequence() const;
  const Dict* dict() const;
  Namespace* names() const;
  const Function* function() const;
  Loop* loop() const;
  bool is_number() const;                  // bool, int or float
  std::optional<int64_t> integer() const;  // of int and bool
  double real() const;                     // of a number
};

enum class SequenceKind { list, tuple, range, iterator, view };

struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  int depth = 0;  // set by Value
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int message = -1;  // number of its message in the conversation
  int depth = 0;     // set by Value

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Function {
  std::string name;
  std::function<Value(Arguments&)> call;
  int depth = 0;  // of the object it is bound to
};

// The variable `loop`.
struct Loop {
  std::shared_ptr<const Sequence> items;
  int64_t index = 0;  // of the current item
};

int depth_of(const Value& value);
// "str", "int", "list", ... for messages.
const char* type_name(const Value& value);
bool is_true(const Value& value);
bool is_equal(const Value& a, const Value& b);
// Items of an iterable value: characters of text, keys of dicts. Null if it is not iterable.
std::shared_ptr<const Sequence> iterate(const Value& value);

// Like Python's str() and repr(). Empty if the value cannot be printed, such as a function.
std::optional<Text> to_text(const Value& value);
std::optional<Text> to_repr(const Value& value);
std::string number_text(double value);  // like repr(float)

struct JsonStyle {
  std::optional<Text> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
// Like Python's json.dumps. The result has the least trusted origin in `value`. Empty for values
// that JSON lacks; `problem` names them.
std::optional<Text> to_json_text(const Value& value, const JsonStyle& style, std::string& problem);

}  // namespace tutti::chat
