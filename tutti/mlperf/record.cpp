#include "tutti/mlperf/record.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

// Stands for a number that JSON cannot write, until the value is parsed.
constexpr std::string_view kSpecial = "\\u0000";

std::string from_latin1(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x80) {
      out += c;
    } else {
      out += static_cast<char>(0xc0U | (byte >> 6U));
      out += static_cast<char>(0x80U | (byte & 0x3fU));
    }
  }
  return out;
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
         c == '-' || c == '.';
}

// The deepest nesting of braces outside strings, and whether a word there needs rewriting.
struct Shape {
  int depth = 0;
  bool special = false;
};

// The end of a string literal that starts at `begin`, or the end of the text.
size_t skip_string(std::string_view text, size_t begin) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') ++i;
    else if (text[i] == '"') return i + 1;
  }
  return text.size();
}

size_t skip_word(std::string_view text, size_t begin) {
  size_t end = begin;
  while (end < text.size() && is_word(text[end])) ++end;
  return end;
}

// What `word` means when JSON cannot write it: nan, inf, -inf; "" when it can.
std::string_view special_number(std::string_view word) {
  if (word == "NaN") return "nan";
  if (word == "Infinity") return "inf";
  if (word == "-Infinity") return "-inf";
  // A number beyond the range of double, such as 1e999 or 400 digits.
  if (word.size() < 5 || word.find_first_not_of("0123456789+-.eE") != std::string_view::npos) {
    return {};
  }
  const double number = std::strtod(std::string(word).c_str(), nullptr);
  if (!std::isinf(number)) return {};
  return number > 0 ? "inf" : "-inf";
}

Shape measure(std::string_view text) {
  Shape shape;
  int depth = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      i = skip_string(text, i);
      continue;
    }
    if (c == '{' || c == '[') shape.depth = std::max(shape.depth, ++depth);
    if (c == '}' || c == ']') --depth;
    if (is_word(c)) {
      const size_t end = skip_word(text, i);
      shape.special = shape.special || !special_number(text.substr(i, end - i)).empty();
      i = end;
      continue;
    }
    ++i;
  }
  return shape;
}

std::string rewrite_special(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == '"') {
      end = skip_string(text, i);
    } else if (is_word(text[i])) {
      end = skip_word(text, i);
      if (const auto number = special_number(text.substr(i, end - i)); !number.empty()) {
        out += fmt::format("\"{}{}\"", kSpecial, number);
        i = end;
        continue;
      }
    }
    out += text.substr(i, end - i);
    i = end;
  }
  return out;
}

// Recursion is bounded by kDeepestNesting.
void restore_special(Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text.size() < 4 || text[0] != '\0') return;
    if (text.compare(1, std::string::npos, "nan") == 0) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (text.compare(1, std::string::npos, "inf") == 0) {
      value = kInfinity;
    } else if (text.compare(1, std::string::npos, "-inf") == 0) {
      value = -kInfinity;
    }
  } else if (value.is_structured()) {
    for (Json& child : value) restore_special(child);
  }
}

// A parser's message without the name of its exception, and without what it read for pages.
std::string shortened(std::string message) {
  constexpr size_t kMost = 160;
  if (const size_t end = message.find("] "); end < 60) message.erase(0, end + 2);
  if (message.size() > kMost) message = message.substr(0, kMost) + "...";
  return printable(message);
}

// time_ms as a number, also when it was logged as text.
bool read_time(const Json& value, double& time_ms) {
  if (value.is_number()) {
    time_ms = value.get<double>();
  } else if (value.is_string()) {
    const std::string text(trim(value.get_ref<const std::string&>()));
    char* end = nullptr;
    time_ms = std::strtod(text.c_str(), &end);
    // strtod reads hexadecimal too, which is not a decimal number.
    const bool decimal = text.find_first_of("xX") == std::string::npos;
    if (text.empty() || *end != '\0' || !decimal) return false;
  } else {
    return false;
  }
  return std::isfinite(time_ms);
}

std::string read_members(Json& object, Record& record) {
  if (!object.is_object()) return "the record is not a JSON object";
  for (const char* member : {"time_ms", "key", "value", "metadata"}) {
    if (!object.contains(member)) return fmt::format("the record has no '{}'", member);
  }
  if (!read_time(object["time_ms"], record.time_ms)) return "'time_ms' is not a number";
  if (!object["key"].is_string()) return "'key' is not text";
  record.key = object["key"].get<std::string>();
  record.value = std::move(object["value"]);
  record.no_metadata = !object["metadata"].is_object();
  record.metadata = record.no_metadata ? Json::object() : std::move(object["metadata"]);
  return {};
}

}  // namespace

std::string parse_record(std::string_view text, Record& record) {
  text = trim(text);
  if (text.size() > kLongestRecordBytes) {
    return fmt::format("the record has {} bytes; more than {} are not read", text.size(),
                       kLongestRecordBytes);
  }
  const Shape shape = measure(text);
  if (shape.depth > kDeepestNesting) {
    return fmt::format("nested {} levels deep; more than {} are not read", shape.depth,
                       kDeepestNesting);
  }
  std::string changed;
  record.latin1 = !is_utf8(text);
  if (record.latin1) text = changed = from_latin1(text);
  if (shape.special) text = changed = rewrite_special(text);
  Json object;
  try {
    object = Json::parse(text);
    if (shape.special) restore_special(object);
  } catch (const nlohmann::json::exception& error) {
    return "not JSON: " + shortened(error.what());
  }
  return read_members(object, record);
}

}  // namespace tutti::mlperf
