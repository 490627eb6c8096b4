// Fields of a form as browsers send them: application/x-www-form-urlencoded.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tutti {

// "a=1&b=x+%26" -> {a: "1", b: "x &"}. Of a repeated name the first value counts; a "%" without two
// hex digits stands for itself.
std::map<std::string, std::string> parse_form(std::string_view text);

}  // namespace tutti
