#include "tutti/chat/list_filters.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/chat/filters.h"
#include "tutti/chat/operators.h"
#include "tutti/chat/predicates.h"

namespace tutti::chat {
namespace {

// For filters that treat false values as empty.
std::shared_ptr<const Sequence> items_if_true(Context& context, const Value& operand) {
  return is_true(operand) ? items_of(context, operand) : std::make_shared<const Sequence>();
}

Value made_iterator(Context& context, std::vector<Value> items) {
  return make_list(context, std::move(items), SequenceKind::iterator);
}

// "a.0.b" of an item.
Value member_of(Context& context, Value item, const Value& path) {
  if (path.text() == nullptr) return get_item(context, item, path);
  for (const std::string_view part : split(path.text()->bytes, '.')) {
    int64_t index = 0;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = !part.empty() && part[0] != '-' && end.ec == std::errc() &&
                        end.ptr == part.data() + part.size();
    item = get_item(context, item, number ? Value(index) : Value(Text(part)));
  }
  return item;
}

// Sort key of an item: case-insensitive unless requested otherwise.
Value sort_key(Context& context, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key =
      attribute == nullptr || attribute->is_none() ? item : member_of(context, item, *attribute);
  const Text* text = key.text();
  if (case_sensitive || text == nullptr) return key;
  context.make(3 * text->size());
  return Value(change_case(*text, LetterCase::lower));
}

using Keyed = std::pair<Value, Value>;  // key, item

void sort_keyed(Context& context, std::vector<Keyed>& items, bool reverse) {
  // Stable in both directions.
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? is_less(context, b.first, a.first) : is_less(context, a.first, b.first);
  });
}

std::vector<Keyed> keyed_items(Context& context, const Value& operand, const Value* attribute,
                               bool case_sensitive) {
  std::vector<Keyed> out;
  const auto all = items_of(context, operand);
  for (const Value& item : all->items) {
    context.step();
    out.emplace_back(sort_key(context, item, attribute, case_sensitive), item);
  }
  return out;
}

}  // namespace

Value join_items(Context& context, const Value& operand, const std::string& name,
                 Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const Value* given = reader.next("d");
  const Value* attribute = reader.next("attribute");
  reader.done();
  const Text separator = given == nullptr ? Text() : text_of(context, *given);
  Text out;
  bool first = true;
  const auto all = items_of(context, operand);
  for (const Value& item : all->items) {
    const Text text = text_of(context, attribute == nullptr || attribute->is_none()
                                           ? item
                                           : member_of(context, item, *attribute));
    context.make(separator.size());
    if (!first) out.append(separator);
    out.append(text);
    first = false;
  }
  return make_text(context, std::move(out));
}

Value take_end(Context& context, const Value& operand, const std::string& name,
               Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  const auto items = items_of(context, operand);
  if (items->items.empty()) return make_undefined("no " + name + " item: it is empty");
  if (name == "first") return items->items.front();
  if (operand.sequence() != nullptr && operand.sequence()->kind == SequenceKind::iterator) {
    context.refuse("'last' of an iterator; write '| list | last'");
  }
  return items->items.back();
}

Value as_list(Context& context, const Value& operand, const std::string& name,
              Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  return make_list(context, items_of(context, operand)->items);
}

Value dict_items(Context& context, const Value& operand, const std::string& name,
                 Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  std::vector<Value> items;
  if (const Dict* dict = operand.dict()) {
    for (const auto& [key, value] : dict->items) {
      items.emplace_back(Sequence{SequenceKind::tuple, {key, value}});
    }
  } else if (!operand.is_undefined()) {
    context.refuse("'items' requires a dict, not {}", type_name(operand));
  }
  return made_iterator(context, std::move(items));
}

Value map_items(Context& context, const Value& operand, const std::string& name,
                Arguments& arguments) {
  std::vector<Value> out;
  const auto items = items_if_true(context, operand);
  if (arguments.positional.empty()) {
    ArgumentReader reader(context, name, arguments);
    const Value attribute = reader.required("attribute");
    const Value* fallback = reader.next("default");
    reader.done();
    for (const Value& item : items->items) {
      Value found = member_of(context, item, attribute);
      if (found.is_undefined() && fallback != nullptr) found = *fallback;
      out.push_back(std::move(found));
    }
    return made_iterator(context, std::move(out));
  }
  const Text* filter = arguments.positional[0].text();
  if (filter == nullptr) context.refuse("'map' requires the name of a filter");
  const Context::Level level(context);
  for (const Value& item : items->items) {
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    out.push_back(apply_filter(context, filter->bytes, item, rest));
  }
  return made_iterator(context, std::move(out));
}

Value select_items(Context& context, const Value& operand, const std::string& name,
                   Arguments& arguments) {
  const bool keeps = name == "select" || name == "selectattr";
  const bool by_member = name == "selectattr" || name == "rejectattr";
  Arguments rest = arguments;
  Value attribute;
  if (by_member) {
    if (rest.positional.empty()) context.refuse("'{}' requires the name of a member", name);
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    const Text* given = rest.positional[0].text();
    if (given == nullptr) context.refuse("'{}' requires the name of a test", name);
    test = given->bytes;
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> out;
  const auto all = items_if_true(context, operand);
  for (const Value& item : all->items) {
    context.step();
    const Value subject = by_member ? member_of(context, item, attribute) : item;
    Arguments copy = rest;
    const bool holds = test.empty() ? is_true(subject) : apply_test(context, test, subject, copy);
    if (holds == keeps) out.push_back(item);
  }
  return made_iterator(context, std::move(out));
}

Value reverse_items(Context& context, const Value& operand, const std::string& name,
                    Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  if (const Text* text = operand.text()) {
    context.make(2 * text->size());
    return Value(slice_text(*text, std::nullopt, std::nullopt, -1));
  }
  std::vector<Value> items = items_of(context, operand)->items;
  std::reverse(items.begin(), items.end());
  return made_iterator(context, std::move(items));
}

Value sort_items(Context& context, const Value& operand, const std::string& name,
                 Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const bool reverse = reader.flag("reverse", false);
  const bool case_sensitive = reader.flag("case_sensitive", false);
  const Value* attribute = reader.next("attribute");
  reader.done();
  if (attribute != nullptr && attribute->text() != nullptr &&
      attribute->text()->bytes.find(',') != std::string::npos) {
    context.unsupported("'sort' by several members");
  }
  std::vector<Keyed> items = keyed_items(context, operand, attribute, case_sensitive);
  sort_keyed(context, items, reverse);
  std::vector<Value> out;
  out.reserve(items.size());
  for (Keyed& item : items) out.push_back(std::move(item.second));
  return make_list(context, std::move(out));
}

Value sort_dict(Context& context, const Value& operand, const std::string& name,
                Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const bool case_sensitive = reader.flag("case_sensitive", false);
  const std::string by = reader.text("by").value_or("key");
  const bool reverse = reader.flag("reverse", false);
  reader.done();
  if (by != "key" && by != "value") context.refuse("'dictsort' must be by 'key' or 'value'");
  if (operand.dict() == nullptr)
    context.refuse("'dictsort' requires a dict, not {}", type_name(operand));
  std::vector<Keyed> items;
  for (const auto& [key, value] : operand.dict()->items) {
    context.step();
    items.emplace_back(sort_key(context, by == "key" ? key : value, nullptr, case_sensitive),
                       Value(Sequence{SequenceKind::tuple, {key, value}}));
  }
  sort_keyed(context, items, reverse);
  std::vector<Value> out;
  out.reserve(items.size());
  for (Keyed& item : items) out.push_back(std::move(item.second));
  return make_list(context, std::move(out));
}

Value unique_items(Context& context, const Value& operand, const std::string& name,
                   Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const bool case_sensitive = reader.flag("case_sensitive", false);
  const Value* attribute = reader.next("attribute");
  reader.done();
  std::vector<Value> seen;
  std::vector<Value> out;
  for (auto& [key, item] : keyed_items(context, operand, attribute, case_sensitive)) {
    context.step(static_cast<int64_t>(seen.size()));
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&, &key = key](const Value& v) { return is_equal(v, key); });
    if (known) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return made_iterator(context, std::move(out));
}

Value sum_items(Context& context, const Value& operand, const std::string& name,
                Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const Value* attribute = reader.next("attribute");
  const Value* start = reader.next("start");
  reader.done();
  Value sum = start == nullptr ? Value(int64_t{0}) : *start;
  const auto all = items_of(context, operand);
  for (const Value& item : all->items) {
    context.step();
    sum = binary(
        context, "+", sum,
        attribute == nullptr || attribute->is_none() ? item : member_of(context, item, *attribute));
  }
  return sum;
}

Value extreme_item(Context& context, const Value& operand, const std::string& name,
                   Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const bool case_sensitive = reader.flag("case_sensitive", false);
  const Value* attribute = reader.next("attribute");
  reader.done();
  const std::vector<Keyed> items = keyed_items(context, operand, attribute, case_sensitive);
  if (items.empty()) return make_undefined("no " + name + "imum: it is empty");
  const Keyed* best = &items.front();
  for (size_t i = 1; i < items.size(); ++i) {
    const Keyed& item = items[i];
    const bool better = name == "min" ? is_less(context, item.first, best->first)
                                      : is_less(context, best->first, item.first);
    if (better) best = &item;
  }
  return best->second;
}

int64_t json_bytes(Context& context, const Value& value, const JsonStyle& style, int depth) {
  context.step();
  const int64_t line =
      style.indent ? 1 + static_cast<int64_t>(style.indent->size()) * (depth + 1) : 0;
  const auto separators =
      static_cast<int64_t>(style.item_separator.size() + style.key_separator.size());
  int64_t bytes = 32;
  if (const Text* text = value.text()) bytes += 6 * static_cast<int64_t>(text->size());
  if (const Sequence* list = value.sequence()) {
    for (const Value& item : list->items) {
      bytes += line + separators + json_bytes(context, item, style, depth + 1);
    }
  }
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : dict->items) {
      bytes += line + separators + json_bytes(context, key, style, depth + 1) +
               json_bytes(context, item, style, depth + 1);
    }
  }
  return bytes;
}

}  // namespace tutti::chat
