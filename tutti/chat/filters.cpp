#include "tutti/chat/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>

#include "tutti/base/text.h"
#include "tutti/chat/arithmetic.h"
#include "tutti/chat/list_filters.h"
#include "tutti/chat/operators.h"

namespace tutti::chat {
namespace {

Value trimmed(Context& context, const Value& operand, const std::string& name,
              Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const auto chars = reader.text("chars");
  reader.done();
  return make_text(context, strip_text(text_of(context, operand), chars, true, true));
}

// Words begin after white space, hyphens and opening brackets: unlike str.title.
Text titled(const Text& text) {
  Text out;
  bool starts = true;
  for (const Text& c : characters(text)) {
    const bool divides = c.bytes.find_first_of("-([{<") == 0 || is_all(c.bytes, TextClass::space);
    out.append(change_case(c, starts ? LetterCase::upper : LetterCase::lower));
    starts = divides;
  }
  return out;
}

Value cased(Context& context, const Value& operand, const std::string& name, Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  const Text text = text_of(context, operand);
  if (name == "title") {
    context.make(200 * text.size());  // for its characters one by one
    return Value(titled(text));
  }
  context.make(3 * text.size());
  return Value(change_case(text, name == "upper"   ? LetterCase::upper
                                 : name == "lower" ? LetterCase::lower
                                                   : LetterCase::capitalized));
}

Value replaced(Context& context, const Value& operand, const std::string& name,
               Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const Text old = text_of(context, reader.required("old"));
  const Text by = text_of(context, reader.required("new"));
  const int64_t most = reader.integer("count").value_or(-1);
  reader.done();
  const Text text = text_of(context, operand);
  const auto found = static_cast<size_t>(count_text(text.bytes, old.bytes));
  context.make(text.size() + found * by.size());
  return Value(replace_text(text, old.bytes, by, most));
}

Value defaulted(Context& context, const Value& operand, const std::string& name,
                Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const Value* fallback = reader.next("default_value");
  const bool any_false = reader.flag("boolean", false);
  reader.done();
  if (!operand.is_undefined() && (!any_false || is_true(operand))) return operand;
  return fallback == nullptr ? Value(Text()) : *fallback;
}

Value as_text(Context& context, const Value& operand, const std::string& name,
              Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  return Value(text_of(context, operand));
}

Value counted(Context& context, const Value& operand, const std::string& name,
              Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  return Value(length_of(context, operand));
}

JsonStyle json_style(Context& context, ArgumentReader& reader) {
  JsonStyle style;
  style.ascii = reader.flag("ensure_ascii", false);
  if (const Value* indent = reader.next("indent"); indent != nullptr && !indent->is_none()) {
    if (const auto spaces = indent->integer()) {
      if (*spaces > 100) context.refuse("'tojson' indents by {}; accepted: up to 100", *spaces);
      style.indent = Text(std::string(static_cast<size_t>(std::max<int64_t>(*spaces, 0)), ' '));
    } else if (indent->text() != nullptr) {
      style.indent = *indent->text();
    } else {
      context.refuse("'tojson' indents by a number or a string, not {}", type_name(*indent));
    }
    style.item_separator = ",";
  }
  if (const Value* separators = reader.next("separators");
      separators != nullptr && !separators->is_none()) {
    const Sequence* both = separators->sequence();
    if (both == nullptr || both->items.size() != 2 || both->items[0].text() == nullptr ||
        both->items[1].text() == nullptr) {
      context.refuse("the separators of 'tojson' must be two strings");
    }
    style.item_separator = both->items[0].text()->bytes;
    style.key_separator = both->items[1].text()->bytes;
  }
  style.sort_keys = reader.flag("sort_keys", false);
  return style;
}

Value as_json(Context& context, const Value& operand, const std::string& name,
              Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const JsonStyle style = json_style(context, reader);
  reader.done();
  const int64_t bytes = json_bytes(context, operand, style, 0);
  context.make(static_cast<size_t>(bytes));
  std::string problem;
  auto text = to_json_text(operand, style, problem);
  if (!text) context.refuse("'tojson' cannot write {}", problem);
  return Value(std::move(*text));
}

Value rounded(Context& context, const Value& operand, const std::string& name,
              Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const int64_t digits = reader.integer("precision").value_or(0);
  const std::string method = reader.text("method").value_or("common");
  reader.done();
  if (!operand.is_number()) context.refuse("'round' requires a number, not {}", type_name(operand));
  if (digits < -15 || digits > 15)
    context.refuse("'round' to {} digits; accepted: up to 15", digits);
  if (method != "common" && method != "ceil" && method != "floor") {
    context.refuse("unknown method '{}' of 'round'; accepted: common, ceil, floor",
                   printable(method));
  }
  if (operand.integer() && method == "common") {
    if (digits < 0) context.unsupported("'round' of integers to tens");
    return Value(*operand.integer());
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double value = operand.real();
  if (method == "ceil") return Value(std::ceil(value * scale) / scale);
  if (method == "floor") return Value(std::floor(value * scale) / scale);
  if (digits <= 0) return Value(std::nearbyint(value * scale) / scale);
  // The exact value, ties to even, as in Python.
  double out = 0;
  const std::string text = fmt::format("{:.{}f}", value, digits);
  std::from_chars(text.data(), text.data() + text.size(), out);
  return Value(out);
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> truncated(double value) {
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value as_number(Context& context, const Value& operand, const std::string& name,
                Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const bool integer = name == "int";
  const Value* given = reader.next("default");
  const int64_t base = integer ? reader.integer("base").value_or(10) : 10;
  reader.done();
  if (base != 10) context.unsupported("'int' with a base other than 10");
  Value fallback = given != nullptr ? *given : integer ? Value(int64_t{0}) : Value(0.0);
  if (operand.is_number()) {
    if (!integer) return Value(operand.real());
    if (operand.integer()) return Value(*operand.integer());
    const auto whole = truncated(operand.real());
    return whole ? Value(*whole) : fallback;
  }
  const Text* text = operand.text();
  if (text == nullptr) return fallback;
  context.read(text->size());
  const Text stripped = strip_text(*text, std::nullopt, true, true);
  std::string_view digits = stripped.bytes;
  if (integer) {
    int64_t value = 0;
    std::string_view plain = digits;
    if (plain.starts_with('+')) plain.remove_prefix(1);
    const auto end = std::from_chars(plain.data(), plain.data() + plain.size(), value);
    if (!plain.empty() && end.ec == std::errc() && end.ptr == plain.data() + plain.size()) {
      return Value(value);
    }
  }
  const auto real = parse_real(digits);
  if (!real) return fallback;
  if (!integer) return Value(*real);
  const auto whole = truncated(*real);
  return whole ? Value(*whole) : fallback;
}

Value absolute(Context& context, const Value& operand, const std::string& name,
               Arguments& arguments) {
  ArgumentReader(context, name, arguments).done();
  if (!operand.is_number()) context.refuse("'abs' requires a number, not {}", type_name(operand));
  if (!operand.integer()) return Value(std::abs(operand.real()));
  return *operand.integer() < 0 ? negative(context, operand) : Value(*operand.integer());
}

Value indented(Context& context, const Value& operand, const std::string& name,
               Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  Text width(std::string(4, ' '));
  if (const Value* given = reader.next("width"); given != nullptr) {
    if (given->text() != nullptr) {
      width = *given->text();
    } else if (const auto spaces = given->integer(); spaces && *spaces <= 1000) {
      width = Text(std::string(static_cast<size_t>(std::max<int64_t>(*spaces, 0)), ' '));
    } else {
      context.refuse("'indent' requires up to 1000 spaces or a string");
    }
  }
  const bool first = reader.flag("first", false);
  const bool blank = reader.flag("blank", false);
  reader.done();
  // A line break at the end of the text would end its last line; it is not kept.
  Text text = text_of(context, operand);
  text.append("\n", Origin::from_template);
  const auto breaks = static_cast<size_t>(count_text(text.bytes, "\n"));
  context.make(2 * text.size() + (breaks + 1) * width.size());
  const std::vector<Text> lines = split_lines(text, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", Origin::from_template);
    const bool wanted = i == 0 ? first : blank || !lines[i].empty();
    if (wanted) out.append(width);
    out.append(lines[i]);
  }
  return Value(std::move(out));
}

using Filter = Value (*)(Context&, const Value&, const std::string&, Arguments&);
struct NamedFilter {
  std::string_view name;
  Filter apply;
};
constexpr NamedFilter kFilters[] = {
    {"trim", trimmed},
    {"upper", cased},
    {"lower", cased},
    {"capitalize", cased},
    {"title", cased},
    {"replace", replaced},
    {"default", defaulted},
    {"d", defaulted},
    {"string", as_text},
    {"length", counted},
    {"count", counted},
    {"tojson", as_json},
    {"round", rounded},
    {"int", as_number},
    {"float", as_number},
    {"abs", absolute},
    {"indent", indented},
    {"join", join_items},
    {"first", take_end},
    {"last", take_end},
    {"list", as_list},
    {"items", dict_items},
    {"map", map_items},
    {"select", select_items},
    {"reject", select_items},
    {"selectattr", select_items},
    {"rejectattr", select_items},
    {"reverse", reverse_items},
    {"sort", sort_items},
    {"dictsort", sort_dict},
    {"unique", unique_items},
    {"sum", sum_items},
    {"min", extreme_item},
    {"max", extreme_item},
};

// Filters of Jinja; listed so that only misspelt ones are unknown.
constexpr std::string_view kOtherFilters[] = {
    "attr",      "batch",  "e",         "escape",   "filesizeformat", "forceescape", "format",
    "groupby",   "pprint", "random",    "safe",     "slice",          "striptags",   "truncate",
    "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr",        "center"};

}  // namespace

Value apply_filter(Context& context, const std::string& name, const Value& operand,
                   Arguments& arguments) {
  context.step();
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return filter.apply(context, operand, name, arguments);
  }
  if (std::find(std::begin(kOtherFilters), std::end(kOtherFilters), name) !=
      std::end(kOtherFilters)) {
    context.unsupported("the filter '" + name + "'");
  }
  std::vector<std::string> names;
  for (const NamedFilter& filter : kFilters) names.emplace_back(filter.name);
  const std::string nearest = nearest_word(name, names);
  context.refuse("unknown filter '{}'{}", name,
                 nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

}  // namespace tutti::chat
