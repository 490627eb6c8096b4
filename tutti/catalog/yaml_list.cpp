#include "tutti/catalog/yaml_list.h"

#include <charconv>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::catalog {
namespace {

YAML::Node list_node(spec::YamlMap& map, const std::string& key) {
  const YAML::Node node = map.node(key);
  if (node.IsDefined() && !node.IsSequence()) map.fail_key(key, "expected a list: [a, b]");
  return node;
}

}  // namespace

void for_each_yaml(
    FileSystem& files, const std::string& folder,
    const std::function<void(const std::string& text, const std::string& path)>& read) {
  if (!files.is_directory(folder)) {
    fail(ErrorKind::not_found,
         "no folder '{}'; the catalog is installed with the program; or set TUTTI_HOME to the "
         "folder that holds catalog/",
         folder);
  }
  bool found = false;
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.is_directory || !ends_with(entry.name, ".yaml")) continue;
    const std::string path = join_path(folder, entry.name);
    read(read_file(files, path), path);
    found = true;
  }
  if (!found) fail(ErrorKind::not_found, "no *.yaml in '{}'", folder);
}

std::vector<std::string> read_words(spec::YamlMap& map, const std::string& key) {
  std::vector<std::string> words;
  for (const YAML::Node& entry : list_node(map, key)) {
    if (!entry.IsScalar()) map.fail_key(key, "expected a list of words");
    words.push_back(entry.Scalar());
  }
  return words;
}

std::vector<double> read_numbers(spec::YamlMap& map, const std::string& key) {
  std::vector<double> numbers;
  for (const std::string& word : read_words(map, key)) {
    double number = 0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (status != std::errc() || end != word.data() + word.size() || !std::isfinite(number)) {
      map.fail_key(key, fmt::format("'{}' is not a number", word));
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<spec::YamlMap> read_maps(spec::YamlMap& map, const std::string& key,
                                     const std::string& origin) {
  std::vector<spec::YamlMap> maps;
  for (const YAML::Node& entry : list_node(map, key)) {
    maps.emplace_back(entry, fmt::format("{}[{}]", key, maps.size()), origin);
  }
  return maps;
}

void require(spec::YamlMap& map, const std::string& key) {
  if (!map.has(key)) map.fail_key(key, "is missing");
}

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') plain += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) plain += c;
  }
  return plain;
}

}  // namespace tutti::catalog
