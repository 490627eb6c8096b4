#include "tutti/chat/methods.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tutti/chat/operators.h"

namespace tutti::chat {
namespace {

Value value_list(Context& context, std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.emplace_back(std::move(text));
  return make_list(context, std::move(items));
}

bool has_affix(Context& context, const Text& text, const Value& affix, bool ends) {
  if (const Text* one = affix.text()) {
    return ends ? text.bytes.ends_with(one->bytes) : text.bytes.starts_with(one->bytes);
  }
  const Sequence* several = affix.sequence();
  if (several == nullptr || several->kind != SequenceKind::tuple) {
    context.refuse("'{}' requires a string or a tuple of strings, not {}",
                   ends ? "endswith" : "startswith", type_name(affix));
  }
  return std::any_of(several->items.begin(), several->items.end(), [&](const Value& one) {
    if (one.text() == nullptr) context.refuse("a prefix or suffix is of type {}", type_name(one));
    return has_affix(context, text, one, ends);
  });
}

Value joined(Context& context, const Text& separator, const Value& list) {
  Text out;
  bool first = true;
  const auto all = items_of(context, list);
  for (const Value& item : all->items) {
    if (item.text() == nullptr) context.refuse("'join' requires strings, not {}", type_name(item));
    context.make(separator.size() + item.text()->size());
    if (!first) out.append(separator);
    out.append(*item.text());
    first = false;
  }
  return make_text(context, std::move(out));
}

Value partitioned(Context& context, const Text& text, const std::string& separator, bool last) {
  if (separator.empty()) context.refuse("the separator is empty");
  const size_t at = last ? text.bytes.rfind(separator) : text.bytes.find(separator);
  std::vector<Value> parts;
  if (at != std::string::npos) {
    parts.emplace_back(text.part(0, at));
    parts.emplace_back(text.part(at, at + separator.size()));
    parts.emplace_back(text.part(at + separator.size(), text.size()));
  } else {
    for (int i = 0; i < 3; ++i) parts.emplace_back(i == (last ? 2 : 0) ? text : Text());
  }
  return make_list(context, std::move(parts), SequenceKind::tuple);
}

using TextMethod = Value (*)(Context&, const Text&, const std::string& name, Arguments&);

Value call_strip(Context& context, const Text& text, const std::string& name,
                 Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const auto chars = reader.text("chars");
  reader.done();
  return make_text(context, strip_text(text, chars, name != "rstrip", name != "lstrip"));
}

Value call_split(Context& context, const Text& text, const std::string& name,
                 Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const auto separator = reader.text("sep");
  const int64_t most = reader.integer("maxsplit").value_or(-1);
  reader.done();
  if (separator && separator->empty()) context.refuse("'{}' with an empty separator", name);
  context.make_items(text.size() / (separator ? separator->size() : 1) + 1);
  return value_list(context, split_text(text, separator, most, name == "rsplit"));
}

Value call_lines(Context& context, const Text& text, const std::string& name,
                 Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const bool keep = reader.flag("keepends", false);
  reader.done();
  context.make_items(static_cast<size_t>(count_text(text.bytes, "\n")) + 1);
  return value_list(context, split_lines(text, keep));
}

Value call_affix(Context& context, const Text& text, const std::string& name,
                 Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const Value affix = reader.required("prefix");
  reader.done();
  return Value(has_affix(context, text, affix, name == "endswith"));
}

Value call_without(Context& context, const Text& text, const std::string& name,
                   Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const std::string affix = reader.required_text("prefix");
  reader.done();
  const bool suffix = name == "removesuffix";
  const bool has = suffix ? text.bytes.ends_with(affix) : text.bytes.starts_with(affix);
  if (!has) return Value(text);
  return make_text(context, suffix ? text.part(0, text.size() - affix.size())
                                   : text.part(affix.size(), text.size()));
}

Value call_case(Context& context, const Text& text, const std::string& name, Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  context.make(3 * text.size());
  return Value(change_case(text, name == "upper"   ? LetterCase::upper
                                 : name == "lower" ? LetterCase::lower
                                 : name == "title" ? LetterCase::title
                                                   : LetterCase::capitalized));
}

Value call_find(Context& context, const Text& text, const std::string& name, Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const std::string what = reader.required_text("sub");
  reader.done();
  if (name == "count") return Value(count_text(text.bytes, what));
  const int64_t found = find_text(text.bytes, what, name == "rfind" || name == "rindex");
  if (found < 0 && (name == "index" || name == "rindex")) {
    context.refuse("'{}': the argument was not found", name);
  }
  return Value(found);
}

Value call_is(Context& context, const Text& text, const std::string& name, Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  return Value(is_all(text.bytes, name == "isalpha"   ? TextClass::alpha
                                  : name == "isdigit" ? TextClass::digit
                                  : name == "isalnum" ? TextClass::alnum
                                  : name == "isspace" ? TextClass::space
                                  : name == "islower" ? TextClass::lower
                                                      : TextClass::upper));
}

Value call_replace(Context& context, const Text& text, const std::string& name,
                   Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const std::string old = reader.required_text("old");
  const Value& by = reader.required("new");
  if (by.text() == nullptr) context.refuse("'replace' requires strings, not {}", type_name(by));
  const int64_t most = reader.integer("count").value_or(-1);
  reader.done();
  const auto found = static_cast<size_t>(count_text(text.bytes, old));
  context.make(text.size() + std::min(found, text.size() + 1) * by.text()->size());
  return Value(replace_text(text, old, *by.text(), most));
}

Value call_join(Context& context, const Text& text, const std::string& name, Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const Value list = reader.required("iterable");
  reader.done();
  return joined(context, text, list);
}

Value call_partition(Context& context, const Text& text, const std::string& name,
                     Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const std::string separator = reader.required_text("sep");
  reader.done();
  return partitioned(context, text, separator, name == "rpartition");
}

struct NamedTextMethod {
  std::string_view name;
  TextMethod call;
};
constexpr NamedTextMethod kTextMethods[] = {
    {"strip", call_strip},          {"lstrip", call_strip},         {"rstrip", call_strip},
    {"split", call_split},          {"rsplit", call_split},         {"splitlines", call_lines},
    {"startswith", call_affix},     {"endswith", call_affix},       {"removeprefix", call_without},
    {"removesuffix", call_without}, {"upper", call_case},           {"lower", call_case},
    {"title", call_case},           {"capitalize", call_case},      {"find", call_find},
    {"rfind", call_find},           {"index", call_find},           {"rindex", call_find},
    {"count", call_find},           {"isalpha", call_is},           {"isdigit", call_is},
    {"isalnum", call_is},           {"isspace", call_is},           {"islower", call_is},
    {"isupper", call_is},           {"replace", call_replace},      {"join", call_join},
    {"partition", call_partition},  {"rpartition", call_partition},
};

// Python's methods that templates do not need here, or that modify values.
constexpr std::string_view kOtherTextMethods[] = {
    "casefold", "center",    "encode",       "expandtabs", "format",      "format_map",
    "isascii",  "isdecimal", "isidentifier", "isnumeric",  "isprintable", "istitle",
    "ljust",    "rjust",     "swapcase",     "translate",  "zfill"};
constexpr std::string_view kChanging[] = {"append",     "clear",   "extend", "insert",
                                          "pop",        "popitem", "remove", "reverse",
                                          "setdefault", "sort",    "update"};

template <typename Names>
bool is_among(const Names& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Value bound(const Value& object, const std::string& name, std::function<Value(Arguments&)> call) {
  return Value(Function{name, std::move(call), depth_of(object)});
}

Value text_method(Context& context, const Value& object, const NamedTextMethod& method) {
  const std::string name(method.name);
  return bound(object, name, [&context, object, name, call = method.call](Arguments& arguments) {
    context.read(object.text()->size());
    return call(context, *object.text(), name, arguments);
  });
}

Value call_dict(Context& context, const Value& object, const std::string& name,
                Arguments& arguments) {
  const Dict& dict = *object.dict();
  context.step(static_cast<int64_t>(dict.items.size()) + 1);
  ArgumentReader reader(context, name, arguments);
  if (name == "get") {
    const Value key = reader.required("key");
    const Value* fallback = reader.next("default");
    reader.done();
    if (const Value* found = dict.find(key)) return *found;
    return fallback == nullptr ? Value(nullptr) : *fallback;
  }
  reader.done();
  if (name == "copy") return object;
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      items.emplace_back(Sequence{SequenceKind::tuple, {key, value}});
    }
  }
  return make_list(context, std::move(items), SequenceKind::view);
}

Value call_list(Context& context, const Value& object, const std::string& name,
                Arguments& arguments) {
  const Sequence& list = *object.sequence();
  context.step(static_cast<int64_t>(list.items.size()) + 1);
  ArgumentReader reader(context, name, arguments);
  if (name == "copy") return reader.done(), object;
  const Value wanted = reader.required("value");
  reader.done();
  const auto same = [&](const Value& item) { return is_equal(item, wanted); };
  if (name == "count") {
    return Value(static_cast<int64_t>(std::count_if(list.items.begin(), list.items.end(), same)));
  }
  const auto found = std::find_if(list.items.begin(), list.items.end(), same);
  if (found == list.items.end()) context.refuse("'index': the argument was not found");
  return Value(static_cast<int64_t>(found - list.items.begin()));
}

Value refused(Context& context, const Value& object, const std::string& name) {
  const std::string what = fmt::format("the method '{}' of {}", name, type_name(object));
  const bool changes = is_among(kChanging, name);
  return bound(object, name, [&context, what, changes](Arguments&) -> Value {
    if (changes) {
      context.refuse("{} modifies a value, which templates must not do; use a namespace and '+'",
                     what);
    }
    context.unsupported(what);
  });
}

}  // namespace

std::optional<Value> find_method(Context& context, const Value& object, const std::string& name) {
  if (object.text() != nullptr) {
    for (const NamedTextMethod& method : kTextMethods) {
      if (method.name == name) return text_method(context, object, method);
    }
    if (is_among(kOtherTextMethods, name)) return refused(context, object, name);
  } else if (object.dict() != nullptr) {
    if (name == "get" || name == "keys" || name == "values" || name == "items" || name == "copy") {
      return bound(object, name, [&context, object, name](Arguments& arguments) {
        return call_dict(context, object, name, arguments);
      });
    }
    if (name == "fromkeys" || name == "pop" || name == "popitem" || name == "clear" ||
        name == "update" || name == "setdefault") {
      return refused(context, object, name);
    }
  } else if (const Sequence* list = object.sequence()) {
    if (list->kind != SequenceKind::list && list->kind != SequenceKind::tuple) return std::nullopt;
    if (name == "index" || name == "count" ||
        (name == "copy" && list->kind == SequenceKind::list)) {
      return bound(object, name, [&context, object, name](Arguments& arguments) {
        return call_list(context, object, name, arguments);
      });
    }
    if (list->kind == SequenceKind::list && is_among(kChanging, name) && name != "popitem" &&
        name != "setdefault" && name != "update") {
      return refused(context, object, name);
    }
  } else if (object.loop() != nullptr && name == "cycle") {
    return bound(object, name, [&context, object](Arguments& arguments) {
      if (arguments.positional.empty()) context.refuse("'loop.cycle' requires values");
      const auto turn = static_cast<size_t>(object.loop()->index);
      return arguments.positional[turn % arguments.positional.size()];
    });
  }
  return std::nullopt;
}

}  // namespace tutti::chat
