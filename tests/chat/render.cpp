// Renders templates for tests in Python: a line of JSON {"template", "variables", "now"} on
// standard input gives a line {"text", "generated"} or {"error", "kind"} on standard output.
#include <cstdio>
#include <iostream>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/chat/json_value.h"
#include "tutti/chat/template.h"

namespace {

using tutti::Json;

Json render(const Json& request) {
  tutti::chat::Variables variables;
  for (const auto& item : request.at("variables").items()) {
    variables.emplace_back(
        item.key(), tutti::chat::value_from_json(item.value(), tutti::chat::Origin::from_input));
  }
  tutti::chat::RenderOptions options;
  if (request.contains("now")) options.now_seconds = request.at("now").get<double>();
  const tutti::chat::Template parsed(request.at("template").get<std::string>(), "template");
  const tutti::chat::Rendered rendered = parsed.render(variables, options);
  Json generated = Json::array();
  for (const auto& range : rendered.generated) {
    generated.push_back(Json::array({range.begin, range.end}));
  }
  return {{"text", rendered.text.bytes}, {"generated", generated}};
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    Json answer;
    try {
      answer = render(tutti::parse_json(line, "standard input"));
    } catch (const tutti::Error& error) {
      answer = {{"error", error.what()}, {"kind", tutti::error_kind_name(error.kind())}};
    }
    std::puts(tutti::dump_json(answer).c_str());
    std::fflush(stdout);
  }
}
