// Output of values: Python's str(), repr() and json.dumps().
#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tutti/chat/value.h"

namespace tutti::chat {
namespace {

// Control and format characters, surrogates, unassigned characters and all spaces except ' '.
bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (u_charType(static_cast<UChar32>(c))) {
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_SURROGATE:
    case U_PRIVATE_USE_CHAR:
    case U_UNASSIGNED:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
    case U_SPACE_SEPARATOR: return false;
    default: return true;
  }
}

void append_repr(const Text& text, Text& out) {
  const bool single =
      text.bytes.find('\'') != std::string::npos && text.bytes.find('"') == std::string::npos;
  const char quote = single ? '"' : '\'';
  out.append(std::string(1, quote), Origin::from_template);
  for (size_t at = 0, width = 0; at < text.size(); at += width) {
    const char32_t c = code_point(text.bytes, at, width);
    const auto origin = static_cast<Origin>(text.origins[at]);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.append("\\", origin);
      out.append(text, at, at + width);
    } else if (c == '\n') {
      out.append("\\n", origin);
    } else if (c == '\r') {
      out.append("\\r", origin);
    } else if (c == '\t') {
      out.append("\\t", origin);
    } else if (is_printable(c)) {
      out.append(text, at, at + width);
    } else if (c < 0x100) {
      out.append(fmt::format("\\x{:02x}", static_cast<uint32_t>(c)), origin);
    } else if (c < 0x10000) {
      out.append(fmt::format("\\u{:04x}", static_cast<uint32_t>(c)), origin);
    } else {
      out.append(fmt::format("\\U{:08x}", static_cast<uint32_t>(c)), origin);
    }
  }
  out.append(std::string(1, quote), Origin::from_template);
}

bool append_nested(const Value& value, Text& out);

bool append_items(const Sequence& list, Text& out) {
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ", Origin::from_template);
    if (!append_nested(list.items[i], out)) return false;
  }
  return true;
}

bool append_sequence(const Sequence& list, Text& out) {
  if (list.kind != SequenceKind::list && list.kind != SequenceKind::tuple) return false;
  const bool tuple = list.kind == SequenceKind::tuple;
  out.append(tuple ? "(" : "[", Origin::from_template);
  if (!append_items(list, out)) return false;
  out.append(!tuple ? "]" : list.items.size() == 1 ? ",)" : ")", Origin::from_template);
  return true;
}

bool append_nested(const Value& value, Text& out) {
  if (const Text* text = value.text()) {
    append_repr(*text, out);
    return true;
  }
  if (const Sequence* list = value.sequence()) return append_sequence(*list, out);
  if (const Dict* dict = value.dict()) {
    out.append("{", Origin::from_template);
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out.append(", ", Origin::from_template);
      if (!append_nested(dict->items[i].first, out)) return false;
      out.append(": ", Origin::from_template);
      if (!append_nested(dict->items[i].second, out)) return false;
    }
    out.append("}", Origin::from_template);
    return true;
  }
  std::string plain;
  if (value.is_undefined()) {
    plain = "Undefined";
  } else if (value.is_none()) {
    plain = "None";
  } else if (const bool* flag = value.boolean()) {
    plain = *flag ? "True" : "False";
  } else if (value.is_number()) {
    const auto integer = value.integer();
    plain = integer ? std::to_string(*integer) : number_text(value.real());
  } else {
    return false;
  }
  out.append(plain, Origin::from_template);
  return true;
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, std::string& problem) : style_(style), problem_(problem) {}

  bool write(const Value& value, int depth) {
    if (const Text* text = value.text()) return write_text(*text);
    if (const Dict* dict = value.dict()) return write_dict(*dict, depth);
    const Sequence* list = value.sequence();
    if (list != nullptr &&
        (list->kind == SequenceKind::list || list->kind == SequenceKind::tuple)) {
      return write_list(*list, depth);
    }
    if (value.is_none()) return put("null");
    if (const bool* flag = value.boolean()) return put(*flag ? "true" : "false");
    if (!value.is_number()) {
      problem_ = type_name(value);
      return false;
    }
    return put(json_number(value));
  }

  Text finish() && {
    if (style_.indent) origin_ = least_trusted(origin_, least_trusted(*style_.indent));
    return Text(out_, origin_);
  }

 private:
  bool put(std::string_view text) {
    out_ += text;
    return true;
  }

  static std::string json_number(const Value& value) {
    if (const auto integer = value.integer()) return std::to_string(*integer);
    const double real = value.real();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return number_text(real);
  }

  bool write_text(const Text& text) {
    origin_ = least_trusted(origin_, least_trusted(text));
    out_ += '"';
    for (size_t at = 0, width = 0; at < text.size(); at += width) {
      write_character(std::string_view(text.bytes), at, width);
    }
    out_ += '"';
    return true;
  }

  void write_character(std::string_view text, size_t at, size_t& width) {
    const char32_t c = code_point(text, at, width);
    switch (c) {
      case '"': out_ += "\\\""; return;
      case '\\': out_ += "\\\\"; return;
      case '\n': out_ += "\\n"; return;
      case '\r': out_ += "\\r"; return;
      case '\t': out_ += "\\t"; return;
      case '\b': out_ += "\\b"; return;
      case '\f': out_ += "\\f"; return;
      default: break;
    }
    if (c >= 0x20 && (!style_.ascii || c < 0x7F)) {
      out_ += text.substr(at, width);
    } else if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      const auto rest = static_cast<uint32_t>(c - 0x10000);
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
  }

  void line_break(int depth) {
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += style_.indent->bytes;
  }
  void separate(size_t index, int depth) {
    if (index > 0) out_ += style_.item_separator;
    if (style_.indent) line_break(depth);
  }

  bool write_list(const Sequence& list, int depth) {
    if (list.items.empty()) return put("[]");
    out_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      separate(i, depth + 1);
      if (!write(list.items[i], depth + 1)) return false;
    }
    if (style_.indent) line_break(depth);
    return put("]");
  }

  // Keys that are not strings are converted to strings.
  bool write_key(const Value& key) {
    if (const Text* text = key.text()) return write_text(*text);
    if (!key.is_none() && !key.is_number()) {
      problem_ = std::string(type_name(key)) + " as a key";
      return false;
    }
    out_ += '"';
    const bool* flag = key.boolean();
    out_ += key.is_none() ? "null" : flag == nullptr ? json_number(key) : *flag ? "true" : "false";
    return put("\"");
  }

  bool write_dict(const Dict& dict, int depth) {
    if (dict.items.empty()) return put("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      for (const auto* item : items) {
        if (item->first.text() != nullptr) continue;
        problem_ = std::string("sorted keys, one of which is ") + type_name(item->first);
        return false;
      }
      std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
        return a->first.text()->bytes < b->first.text()->bytes;
      });
    }
    out_ += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      separate(i, depth + 1);
      if (!write_key(items[i]->first)) return false;
      out_ += style_.key_separator;
      if (!write(items[i]->second, depth + 1)) return false;
    }
    if (style_.indent) line_break(depth);
    return put("}");
  }

  const JsonStyle& style_;
  std::string& problem_;
  std::string out_;
  Origin origin_ = Origin::from_template;
};

}  // namespace

// Source of the form: float_repr_style "short" of CPython: an exponent below -4 or from 16 on.
std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string scientific(buffer, end.ptr);
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::optional<Text> to_text(const Value& value) {
  if (const Text* text = value.text()) return *text;
  if (value.is_undefined()) return Text();
  return to_repr(value);
}

std::optional<Text> to_repr(const Value& value) {
  Text out;
  if (!append_nested(value, out)) return std::nullopt;
  return out;
}

std::optional<Text> to_json_text(const Value& value, const JsonStyle& style, std::string& problem) {
  JsonWriter writer(style, problem);
  if (!writer.write(value, 0)) return std::nullopt;
  return std::move(writer).finish();
}

}  // namespace tutti::chat
