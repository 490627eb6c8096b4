#include "tutti/base/flat_yaml.h"

#include "tutti/base/text.h"

namespace tutti {

std::vector<std::pair<std::string, std::string>> flatten_yaml(std::string_view yaml) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<std::string> path;
  for (const std::string_view line : split(yaml, '\n')) {
    const size_t indent = line.find_first_not_of(' ');
    const size_t colon = line.find(':');
    if (indent == std::string_view::npos || colon == std::string_view::npos || colon < indent) {
      continue;
    }
    path.resize(indent / 2);
    path.emplace_back(line.substr(indent, colon - indent));
    const std::string_view value = trim(line.substr(colon + 1));
    if (!value.empty()) pairs.emplace_back(join(path, "."), value);
  }
  return pairs;
}

}  // namespace tutti
