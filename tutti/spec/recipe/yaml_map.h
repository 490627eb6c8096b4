// Typed reading of YAML mappings whose keys are all known.
//
// Every error is usage and starts with "ORIGIN:LINE: key.path:", or "override: key.path:" where the
// value was given beside the file, then gives the value and what would be accepted. Each read names
// a key; finish() rejects unread keys, suggesting the nearest known one. A key that is absent
// leaves the destination alone.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::spec {

// The YAML value of `text`. Throws usage naming `origin` and the line when it is not YAML, holds a
// second document, or a tag other than those of YAML's own types.
YAML::Node parse_yaml(const std::string& text, const std::string& origin);

// Sets `a.b.c` to the YAML value after "=" in "a.b.c=value", making mappings on the way. A scalar
// `model` (of the root or of `distill`) on the way becomes {preset: scalar}, a scalar `recompute`
// {mode: scalar}, a scalar `precision` {compute: scalar}.
void apply_override(YAML::Node& root, const std::string& assignment);

class YamlMap {
 public:
  // `path` is "" at the root; a node that is absent or null reads as an empty mapping.
  YamlMap(const YAML::Node& node, std::string path, std::string origin);

  const std::string& origin() const { return origin_; }
  std::string path_of(const std::string& key) const;  // "batch.global"
  bool has(const std::string& key);                   // also marks it as known
  YAML::Node node(const std::string& key);
  YamlMap map(const std::string& key);
  // The mappings of a list; their paths are "key.0", "key.1", ...
  std::vector<YamlMap> items(const std::string& key);

  void read_text(const std::string& key, std::string& value);
  void read_texts(const std::string& key, std::vector<std::string>& values);  // a list, or one
  void read_counts(const std::string& key, std::vector<int64_t>& values);     // a list, or one
  void read_count(const std::string& key, int64_t& value, int64_t least, int64_t most);
  void read_count(const std::string& key, int& value, int64_t least, int64_t most);
  void read_seed(const std::string& key, uint64_t& value);
  void read_real(const std::string& key, double& value);
  void read_real(const std::string& key, std::optional<double>& value);  // null: none
  void read_seconds(const std::string& key, double& value);
  void read_flag(const std::string& key, bool& value);

  template <typename Enum>
  void read_choice(const std::string& key, Enum& value,
                   const std::vector<std::pair<std::string, Enum>>& choices) {
    std::vector<std::string> names;
    names.reserve(choices.size());
    for (const auto& choice : choices) names.push_back(choice.first);
    if (const int index = choice_index(key, names); index >= 0) {
      value = choices[static_cast<size_t>(index)].second;
    }
  }

  // Fails with "ORIGIN:LINE: path.key: message".
  [[noreturn]] void fail_key(const std::string& key, const std::string& message);

  void finish();

 private:
  std::string where(const std::string& key) const;
  std::optional<std::string> scalar(const std::string& key, const char* wanted);
  int choice_index(const std::string& key, const std::vector<std::string>& names);

  std::vector<std::pair<std::string, YAML::Node>> entries_;
  std::vector<std::string> known_;
  std::string path_;
  std::string origin_;
};

}  // namespace tutti::spec
