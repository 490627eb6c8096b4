// Helpers of the catalog's loaders: folders of YAML files, lists in them, names.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::catalog {

// Calls `read` with text and path of every *.yaml of a folder, sorted by name. Throws not_found
// when there is no such folder or no such file in it.
void for_each_yaml(
    FileSystem& files, const std::string& folder,
    const std::function<void(const std::string& text, const std::string& path)>& read);

// The list under `key`, absent: empty. Throws usage when it is something else.
std::vector<std::string> read_words(spec::YamlMap& map, const std::string& key);
std::vector<double> read_numbers(spec::YamlMap& map, const std::string& key);
std::vector<spec::YamlMap> read_maps(spec::YamlMap& map, const std::string& key,
                                     const std::string& origin);

// Throws usage unless `key` was given.
void require(spec::YamlMap& map, const std::string& key);

// Lower case letters and digits of a name; the rest falls away: "H100 SXM" becomes "h100sxm".
std::string plain_name(std::string_view name);

}  // namespace tutti::catalog
