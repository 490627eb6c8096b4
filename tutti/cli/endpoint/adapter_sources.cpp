#include "tutti/cli/endpoint/adapter_sources.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/endpoint/adapters.h"
#include "tutti/object/file_system.h"

namespace tutti::cli {

std::pair<std::string, std::string> split_model(const std::string& text) {
  const size_t sign = text.find('=');
  const bool is_named =
      sign != std::string::npos && sign > 0 && text.substr(0, sign).find('/') == std::string::npos;
  if (!is_named) return {"", text};
  return {text.substr(0, sign), text.substr(sign + 1)};
}

AdapterSource split_adapter(const std::string& text, size_t models) {
  const auto [given, path] = split_model(text);
  const size_t colon = given.find(':');
  AdapterSource out{"", given, path};
  if (colon != std::string::npos) {
    out.model = given.substr(0, colon);
    out.name = given.substr(colon + 1);
  }
  if (out.name.empty() || out.path.empty()) {
    fail(ErrorKind::usage, "--adapter {}: write NAME=PATH", text);
  }
  if (out.model.empty() && models > 1) {
    fail(ErrorKind::usage, "--adapter {}: of which model? write MODEL:NAME=PATH", text);
  }
  return out;
}

void add_adapters(const std::vector<AdapterSource>& sources, const std::string& name,
                  endpoint::LoadedModel& model) {
  for (const AdapterSource& source : sources) {
    if (!source.model.empty() && source.model != name) continue;
    throw_if_interrupted();
    endpoint::add_adapter(object::file_system(), model, source.name, source.path);
  }
}

void check_names(const std::vector<AdapterSource>& sources,
                 const std::vector<std::string>& models) {
  std::vector<std::string> names = models;
  for (const AdapterSource& source : sources) {
    if (!source.model.empty() &&
        std::find(models.begin(), models.end(), source.model) == models.end()) {
      fail(ErrorKind::usage, "--adapter {}:{}: no model is called '{}'; there are: {}",
           source.model, source.name, source.model, join(models, ", "));
    }
    if (std::find(names.begin(), names.end(), source.name) != names.end()) {
      fail(ErrorKind::usage, "--adapter: '{}' is the name of two; name one of them otherwise",
           source.name);
    }
    names.push_back(source.name);
  }
}

}  // namespace tutti::cli
