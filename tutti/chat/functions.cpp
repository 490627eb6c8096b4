#include "tutti/chat/functions.h"

#include <algorithm>
#include <ctime>

#include "tutti/chat/operators.h"

namespace tutti::chat {
namespace {

Value make_range(Context& context, Arguments& arguments) {
  constexpr int64_t kMostItems = 100'000;  // as in Jinja's sandbox
  ArgumentReader reader(context, "range", arguments);
  const auto first = reader.integer("start");
  const auto second = reader.integer("stop");
  const int64_t step = reader.integer("step").value_or(1);
  reader.done();
  if (!first) context.refuse("'range' requires an end");
  if (step == 0) context.refuse("the step of 'range' is 0");
  const int64_t begin = second ? *first : 0;
  const int64_t end = second ? *second : *first;
  constexpr int64_t kFar = int64_t{1} << 62;
  if (std::max({begin, end, step}) > kFar || std::min({begin, end, step}) < -kFar) {
    context.refuse("'range' goes beyond 62 bits");
  }
  const int64_t count = step > 0 ? (end > begin ? (end - begin - 1) / step + 1 : 0)
                                 : (begin > end ? (begin - end - 1) / -step + 1 : 0);
  if (count > kMostItems)
    context.refuse("'range' has {} numbers; accepted: up to {}", count, kMostItems);
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i) items.emplace_back(begin + i * step);
  return make_list(context, std::move(items), SequenceKind::range);
}

// The members passed to dict(...) and namespace(...).
Dict members(Context& context, const std::string& callee, const Arguments& arguments) {
  Dict out;
  if (arguments.positional.size() > 1)
    context.refuse("'{}' accepts one positional argument", callee);
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (const Dict* dict = from.dict()) {
      context.step(static_cast<int64_t>(dict->items.size()));
      out.items = dict->items;
    } else {
      const auto all = items_of(context, from);
      for (const Value& pair : all->items) {
        const auto both = items_of(context, pair);
        if (both->items.size() != 2) context.refuse("'{}' takes pairs", callee);
        context.step(static_cast<int64_t>(out.items.size()));
        out.set(both->items[0], both->items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) out.set(Value(Text(name)), value);
  context.make_items(2 * out.items.size());
  return out;
}

Value now_text(Context& context, Arguments& arguments) {
  ArgumentReader reader(context, "strftime_now", arguments);
  const std::string format = reader.required_text("format");
  reader.done();
  if (format.empty()) return Value(Text());
  const auto seconds = static_cast<std::time_t>(context.now_seconds());
  std::tm time{};
  localtime_r(&seconds, &time);
  // A width such as %999999999d would be expanded.
  if (format.size() > 200 ||
      std::any_of(format.begin(), format.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    context.refuse("the format of 'strftime_now' is too long or has digits");
  }
  std::string out(4096, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &time));
  return make_text(context, Text(out));
}

}  // namespace

std::optional<Value> find_function(
    Context& context, const std::string& name,
    const std::function<std::shared_ptr<Namespace>()>& make_namespace) {
  const auto function = [&](std::function<Value(Arguments&)> call) {
    return Value(Function{name, std::move(call)});
  };
  if (name == "range") {
    return function([&context](Arguments& arguments) { return make_range(context, arguments); });
  }
  if (name == "dict") {
    return function(
        [&context](Arguments& arguments) { return Value(members(context, "dict", arguments)); });
  }
  if (name == "namespace") {
    return function([&context, make_namespace](Arguments& arguments) {
      const std::shared_ptr<Namespace> out = make_namespace();
      const Dict given = members(context, "namespace", arguments);
      for (const auto& [key, value] : given.items) {
        if (key.text() == nullptr)
          context.refuse("a name in a namespace is of type {}", type_name(key));
        if (key.text()->bytes.starts_with("_")) {
          context.refuse("'{}': names of a namespace do not start with '_'", key.text()->bytes);
        }
        out->items.emplace_back(key.text()->bytes, value);
      }
      return Value(out);
    });
  }
  if (name == "raise_exception") {
    return function([&context](Arguments& arguments) -> Value {
      ArgumentReader reader(context, "raise_exception", arguments);
      const std::string message = text_of(context, reader.required("message")).bytes;
      context.refuse("the template refuses the conversation: {}", message);
    });
  }
  if (name == "strftime_now") {
    return function([&context](Arguments& arguments) { return now_text(context, arguments); });
  }
  if (name == "lipsum" || name == "cycler" || name == "joiner") {
    return function([&context, name](Arguments&) -> Value {
      context.unsupported("the function '" + name + "'");
    });
  }
  return std::nullopt;
}

}  // namespace tutti::chat
