// Regular YAML as Tutti writes it (spec::to_yaml): nested mappings, two spaces of indentation per
// level, one key per line. Not a YAML parser: for comparing and showing recipes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

// (path of keys joined by dots, value as written), in order: {"model.layers", "4"}. Keys without a
// value on their line (mappings) are left out.
std::vector<std::pair<std::string, std::string>> flatten_yaml(std::string_view yaml);

}  // namespace tutti
