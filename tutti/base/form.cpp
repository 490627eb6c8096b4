#include "tutti/base/form.h"

#include <charconv>

#include "tutti/base/text.h"

namespace tutti {
namespace {

std::string decode_form(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned value = 0;
    const char* digits = text.data() + at + 1;
    if (text[at] == '%' && at + 2 < text.size() &&
        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      out += static_cast<char>(value);
      at += 2;
    } else {
      out += text[at] == '+' ? ' ' : text[at];
    }
  }
  return out;
}

}  // namespace

std::map<std::string, std::string> parse_form(std::string_view text) {
  std::map<std::string, std::string> fields;
  for (const std::string_view part : split(text, '&')) {
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    fields.emplace(decode_form(part.substr(0, equals)), decode_form(value));
  }
  return fields;
}

}  // namespace tutti
