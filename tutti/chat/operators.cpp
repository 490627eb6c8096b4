#include "tutti/chat/operators.h"

#include <algorithm>

#include "tutti/chat/arithmetic.h"
#include "tutti/chat/methods.h"

namespace tutti::chat {
namespace {

std::string name_undefined(const Value& value) {
  const auto& what = std::get<Undefined>(value.data).what;
  return what == nullptr ? "a value is undefined" : *what;
}

void need_defined(Context& context, const Value& value) {
  if (value.is_undefined()) context.refuse("{}", name_undefined(value));
}

[[noreturn]] void refuse_operands(Context& context, const std::string& symbol, const Value& a,
                                  const Value& b) {
  context.refuse("'{}' cannot be applied to {} and {}", symbol, type_name(a), type_name(b));
}

// Repeats a text or a list.
Value repeated(Context& context, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const Text* text = value.text();
  const size_t size = text != nullptr ? text->size() : value.sequence()->items.size();
  size_t total = 0;
  if (__builtin_mul_overflow(size, count, &total) || total > size_t{1} << 40) {
    context.refuse("the result of '*' is too large");
  }
  if (text == nullptr) {
    context.make_items(total);
    Sequence out{value.sequence()->kind, {}};
    for (size_t i = 0; i < count && size > 0; ++i) {
      const auto& items = value.sequence()->items;
      out.items.insert(out.items.end(), items.begin(), items.end());
    }
    return Value(std::move(out));
  }
  context.make(total);
  Text out;
  for (size_t i = 0; i < count && size > 0; ++i) out.append(*text);
  return Value(std::move(out));
}

bool is_list(const Value& value) {
  const Sequence* list = value.sequence();
  return list != nullptr && (list->kind == SequenceKind::list || list->kind == SequenceKind::tuple);
}

Value added(Context& context, const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) {
    context.make(a.text()->size() + b.text()->size());
    Text out = *a.text();
    out.append(*b.text());
    return Value(std::move(out));
  }
  if (is_list(a) && is_list(b) && a.sequence()->kind == b.sequence()->kind) {
    context.make_items(a.sequence()->items.size() + b.sequence()->items.size());
    Sequence out{a.sequence()->kind, a.sequence()->items};
    out.items.insert(out.items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    return Value(std::move(out));
  }
  refuse_operands(context, "+", a, b);
}

// Charges for reading all of a value.
void charge(Context& context, const Value& value) {
  if (const Text* text = value.text()) context.read(text->size());
  if (const Sequence* list = value.sequence()) {
    context.step(static_cast<int64_t>(list->items.size()));
  }
  if (const Dict* dict = value.dict()) context.step(static_cast<int64_t>(dict->items.size()));
}

Value missing(const Value& object, const std::string& name) {
  return make_undefined(
      fmt::format("a value of type {} has no member '{}'", type_name(object), name));
}

Value loop_member(Context& context, const Loop& loop, const std::string& name) {
  const auto size = static_cast<int64_t>(loop.items->items.size());
  const auto item = [&](int64_t index) {
    if (index >= 0 && index < size) return loop.items->items[static_cast<size_t>(index)];
    return make_undefined("there is no item before the first or after the last one of a loop");
  };
  if (name == "index") return Value(loop.index + 1);
  if (name == "index0") return Value(loop.index);
  if (name == "revindex") return Value(size - loop.index);
  if (name == "revindex0") return Value(size - loop.index - 1);
  if (name == "first") return Value(loop.index == 0);
  if (name == "last") return Value(loop.index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "previtem") return item(loop.index - 1);
  if (name == "nextitem") return item(loop.index + 1);
  // Of recursive loops, which are not supported.
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  context.unsupported("'loop." + name + "'");
}

}  // namespace

Value make_undefined(std::string what) {
  Value value;
  value.data = Undefined{std::make_shared<const std::string>(std::move(what))};
  return value;
}

Text text_of(Context& context, const Value& value) {
  charge(context, value);
  auto text = to_text(value);
  if (!text) context.unsupported(fmt::format("to write a value of type {}", type_name(value)));
  context.make(text->size());
  return std::move(*text);
}

std::shared_ptr<const Sequence> items_of(Context& context, const Value& value) {
  if (const Text* text = value.text()) {
    context.make_items(text->size());
  } else {
    charge(context, value);
  }
  auto items = iterate(value);
  if (items == nullptr) context.refuse("a value of type {} has no items", type_name(value));
  return items;
}

int64_t length_of(Context& context, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) {
    context.read(text->size());
    return code_points(text->bytes);
  }
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->items.size());
  const Sequence* list = value.sequence();
  if (list == nullptr || list->kind == SequenceKind::iterator) {
    context.refuse("a value of type {} has no length", type_name(value));
  }
  return static_cast<int64_t>(list->items.size());
}

Value make_list(Context& context, std::vector<Value> items, SequenceKind kind) {
  context.make_items(items.size());
  return Value(Sequence{kind, std::move(items)});
}

Value make_text(Context& context, Text text) {
  context.make(text.size());
  return Value(std::move(text));
}

Value binary(Context& context, const std::string& symbol, const Value& a, const Value& b) {
  need_defined(context, a);
  if (symbol == "%" && a.text() != nullptr) context.unsupported("formatting with '%'");
  need_defined(context, b);
  if (a.is_number() && b.is_number()) return arithmetic(context, symbol, a, b);
  if (symbol == "+") return added(context, a, b);
  if (symbol == "*") {
    if ((a.text() != nullptr || is_list(a)) && b.integer())
      return repeated(context, a, *b.integer());
    if ((b.text() != nullptr || is_list(b)) && a.integer())
      return repeated(context, b, *a.integer());
  }
  refuse_operands(context, symbol, a, b);
}

bool is_less(Context& context, const Value& a, const Value& b) {
  context.step();
  if (a.is_number() && b.is_number()) {
    const auto x = a.integer();
    const auto y = b.integer();
    return x && y ? *x < *y : a.real() < b.real();
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    context.read(std::min(a.text()->size(), b.text()->size()));
    return a.text()->bytes < b.text()->bytes;  // by code points, in UTF-8
  }
  need_defined(context, a);
  need_defined(context, b);
  if (!is_list(a) || !is_list(b) || a.sequence()->kind != b.sequence()->kind) {
    refuse_operands(context, "<", a, b);
  }
  const auto& x = a.sequence()->items;
  const auto& y = b.sequence()->items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!is_equal(x[i], y[i])) return is_less(context, x[i], y[i]);
  }
  return x.size() < y.size();
}

bool compare(Context& context, const std::string& symbol, const Value& a, const Value& b) {
  if (symbol == "in") return contains(context, b, a);
  if (symbol == "not in") return !contains(context, b, a);
  charge(context, a);
  charge(context, b);
  if (symbol == "==") return is_equal(a, b);
  if (symbol == "!=") return !is_equal(a, b);
  if (symbol == "<") return is_less(context, a, b);
  if (symbol == ">") return is_less(context, b, a);
  // With NaN this is not the negation of the other comparison.
  if (symbol == "<=") return is_less(context, a, b) || is_equal(a, b);
  return is_less(context, b, a) || is_equal(a, b);
}

bool contains(Context& context, const Value& container, const Value& item) {
  charge(context, container);
  if (container.is_undefined()) return false;
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      need_defined(context, item);
      context.refuse("'in' with a string requires a string, not {}", type_name(item));
    }
    return text->bytes.find(item.text()->bytes) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item) != nullptr;
  const Sequence* list = container.sequence();
  if (list == nullptr) context.refuse("'in' cannot be applied to {}", type_name(container));
  for (const Value& candidate : list->items) {
    context.step();
    if (is_equal(candidate, item)) return true;
  }
  return false;
}

Value get_item(Context& context, const Value& object, const Value& key) {
  if (object.is_undefined()) {
    const Text* name = key.text();
    context.refuse("{}; cannot read its member {}", name_undefined(object),
                   name != nullptr ? "'" + name->bytes + "'" : std::string("of a number"));
  }
  if (const Dict* dict = object.dict()) {
    context.step(static_cast<int64_t>(dict->items.size()) / 8);
    if (const Value* found = dict->find(key)) return *found;
  }
  const auto index = key.integer();
  const Sequence* list = object.sequence();
  const Text* text = object.text();
  if (index && text != nullptr) {
    context.read(text->size());
    const int64_t at = *index < 0 ? *index + code_points(text->bytes) : *index;
    if (at >= 0) {
      Text found = slice_text(*text, at, at + 1, 1);
      if (!found.empty()) return Value(std::move(found));
    }
  } else if (index && list != nullptr &&
             (list->kind == SequenceKind::list || list->kind == SequenceKind::tuple ||
              list->kind == SequenceKind::range)) {
    const auto size = static_cast<int64_t>(list->items.size());
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at >= 0 && at < size) return list->items[static_cast<size_t>(at)];
  }
  if (const Text* name = key.text()) {
    if (object.dict() == nullptr) return get_attribute(context, object, name->bytes);
    if (auto method = find_method(context, object, name->bytes)) return std::move(*method);
    return missing(object, name->bytes);
  }
  return make_undefined(fmt::format("a value of type {} has no such item", type_name(object)));
}

Value get_attribute(Context& context, const Value& object, const std::string& name) {
  context.step();
  if (object.is_undefined()) {
    context.refuse("{}; cannot read its member '{}'", name_undefined(object), name);
  }
  if (auto method = find_method(context, object, name)) return std::move(*method);
  if (const Dict* dict = object.dict()) {
    context.step(static_cast<int64_t>(dict->items.size()) / 8);
    if (const Value* found = dict->find(name)) return *found;
  }
  if (const Namespace* names = object.names()) {
    for (const auto& [key, value] : names->items) {
      if (key == name) return value;
    }
  }
  if (const Loop* loop = object.loop()) return loop_member(context, *loop, name);
  return missing(object, name);
}

Value get_slice(Context& context, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  need_defined(context, object);
  const auto part = [](const Value& value) {
    return value.is_none() ? std::nullopt : value.integer();
  };
  for (const Value* value : {&start, &stop, &step}) {
    if (!value->is_none() && !value->integer()) {
      return make_undefined(fmt::format("a slice has a part of type {}", type_name(*value)));
    }
  }
  const int64_t stride = part(step).value_or(1);
  if (stride == 0) context.refuse("the step of a slice is 0");
  if (const Text* text = object.text()) {
    context.make(2 * text->size());
    return Value(slice_text(*text, part(start), part(stop), stride));
  }
  const Sequence* list = object.sequence();
  if (list == nullptr || list->kind == SequenceKind::iterator || list->kind == SequenceKind::view) {
    return make_undefined(fmt::format("a value of type {} cannot be sliced", type_name(object)));
  }
  const SliceRange range =
      slice_range(static_cast<int64_t>(list->items.size()), part(start), part(stop), stride);
  std::vector<Value> items;
  int64_t index = range.first;
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(list->items[static_cast<size_t>(index)]);
    if (i + 1 < range.count) index += stride;
  }
  return make_list(context, std::move(items), list->kind);
}

}  // namespace tutti::chat
