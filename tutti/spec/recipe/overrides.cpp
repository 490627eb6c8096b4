#include <string>
#include <vector>

#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::spec {

std::vector<std::string> read_overrides(const std::string& text, const std::string& origin) {
  const YAML::Node root = parse_yaml(text, origin);
  const YamlMap checked(root, "", origin);  // rejects lists and repeated keys
  std::vector<std::string> overrides;
  const auto add = [&](const auto& self, const YAML::Node& node, const std::string& path) -> void {
    if (!node.IsMap()) {
      YAML::Emitter out;
      out << YAML::Flow << node;
      overrides.push_back(path + "=" + out.c_str());
      return;
    }
    for (const auto& entry : node) {
      self(self, entry.second, (path.empty() ? "" : path + ".") + entry.first.Scalar());
    }
  };
  add(add, root, "");
  return overrides;
}

}  // namespace tutti::spec
