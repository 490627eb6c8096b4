#include "tutti/chat/value.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"

namespace tutti::chat {
namespace {

// A value deeper than kMostNesting must never be created: destroying it would need as much stack.
int checked_depth(int inner) {
  if (inner >= kMostNesting) {
    fail(ErrorKind::usage, "values are nested more than {} deep", kMostNesting);
  }
  return inner + 1;
}

bool equal_items(const Sequence& a, const Sequence& b) {
  return a.items.size() == b.items.size() &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), is_equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = b.find(item.first);
    return other != nullptr && is_equal(item.second, *other);
  });
}

}  // namespace

Value::Value(Sequence value) {
  int inner = 0;
  for (const Value& item : value.items) inner = std::max(inner, depth_of(item));
  value.depth = checked_depth(inner);
  data = std::make_shared<const Sequence>(std::move(value));
}

Value::Value(Dict value) {
  int inner = 0;
  for (const auto& [key, item] : value.items) {
    inner = std::max({inner, depth_of(key), depth_of(item)});
  }
  value.depth = checked_depth(inner);
  data = std::make_shared<const Dict>(std::move(value));
}

Value::Value(Function value) {
  value.depth = checked_depth(value.depth);
  data = std::make_shared<const Function>(std::move(value));
}

const Text* Value::text() const {
  const auto* found = std::get_if<std::shared_ptr<const Text>>(&data);
  return found == nullptr ? nullptr : found->get();
}
const Sequence* Value::sequence() const {
  const auto* found = std::get_if<std::shared_ptr<const Sequence>>(&data);
  return found == nullptr ? nullptr : found->get();
}
const Dict* Value::dict() const {
  const auto* found = std::get_if<std::shared_ptr<const Dict>>(&data);
  return found == nullptr ? nullptr : found->get();
}
Namespace* Value::names() const {
  const auto* found = std::get_if<std::shared_ptr<Namespace>>(&data);
  return found == nullptr ? nullptr : found->get();
}
const Function* Value::function() const {
  const auto* found = std::get_if<std::shared_ptr<const Function>>(&data);
  return found == nullptr ? nullptr : found->get();
}
Loop* Value::loop() const {
  const auto* found = std::get_if<std::shared_ptr<Loop>>(&data);
  return found == nullptr ? nullptr : found->get();
}

bool Value::is_number() const {
  return std::holds_alternative<bool>(data) || std::holds_alternative<int64_t>(data) ||
         std::holds_alternative<double>(data);
}

std::optional<int64_t> Value::integer() const {
  if (const auto* number = std::get_if<int64_t>(&data)) return *number;
  if (const bool* flag = boolean()) return *flag ? 1 : 0;
  return std::nullopt;
}

double Value::real() const {
  if (const auto* number = std::get_if<double>(&data)) return *number;
  return static_cast<double>(integer().value_or(0));
}

const Value* Dict::find(const Value& key) const {
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const auto& item) { return is_equal(item.first, key); });
  return found == items.end() ? nullptr : &found->second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) {
    const Text* text = item.first.text();
    return text != nullptr && text->bytes == key;
  });
  return found == items.end() ? nullptr : &found->second;
}

void Dict::set(Value key, Value value) {
  for (auto& item : items) {
    if (!is_equal(item.first, key)) continue;
    item.second = std::move(value);
    return;
  }
  items.emplace_back(std::move(key), std::move(value));
}

int depth_of(const Value& value) {
  if (const Sequence* list = value.sequence()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const Function* function = value.function()) return function->depth;
  if (const Loop* loop = value.loop()) return loop->items == nullptr ? 1 : loop->items->depth + 1;
  return 0;
}

const char* type_name(const Value& value) {
  if (const Sequence* list = value.sequence()) {
    switch (list->kind) {
      case SequenceKind::list: return "list";
      case SequenceKind::tuple: return "tuple";
      case SequenceKind::range: return "range";
      case SequenceKind::iterator: return "iterator";
      case SequenceKind::view: return "view of a dict";
    }
  }
  if (value.is_undefined()) return "undefined";
  if (value.is_none()) return "none";
  if (value.boolean() != nullptr) return "bool";
  if (std::holds_alternative<int64_t>(value.data)) return "int";
  if (std::holds_alternative<double>(value.data)) return "float";
  if (value.text() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (value.names() != nullptr) return "namespace";
  return value.loop() != nullptr ? "loop" : "function";
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.real() != 0;  // NaN is true, as in Python
  if (const Text* text = value.text()) return !text->empty();
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  if (const Sequence* list = value.sequence()) {
    return list->kind == SequenceKind::iterator || !list->items.empty();
  }
  return true;
}

bool is_equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const auto x = a.integer();
    const auto y = b.integer();
    return x && y ? *x == *y : a.real() == b.real();
  }
  if (a.data.index() != b.data.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const Text* text = a.text()) return text->bytes == b.text()->bytes;
  if (const Dict* dict = a.dict()) return dict == b.dict() || equal_dicts(*dict, *b.dict());
  if (const Sequence* list = a.sequence()) {
    if (list == b.sequence()) return true;
    const bool compared = list->kind != SequenceKind::iterator && list->kind == b.sequence()->kind;
    return compared && equal_items(*list, *b.sequence());
  }
  if (a.names() != nullptr) return a.names() == b.names();
  if (a.loop() != nullptr) return a.loop() == b.loop();
  return a.function() == b.function();
}

std::shared_ptr<const Sequence> iterate(const Value& value) {
  if (const auto* list = std::get_if<std::shared_ptr<const Sequence>>(&value.data)) return *list;
  auto out = std::make_shared<Sequence>();
  if (value.is_undefined()) return out;
  if (const Text* text = value.text()) {
    for (Text& c : characters(*text)) out->items.emplace_back(std::move(c));
    return out;
  }
  if (const Dict* dict = value.dict()) {
    for (const auto& item : dict->items) out->items.push_back(item.first);
    out->depth = dict->depth;
    return out;
  }
  return nullptr;
}

}  // namespace tutti::chat
