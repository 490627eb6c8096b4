// Reads the keys of a section (spec/recipe/keys.h) from YAML. Errors are those of YamlMap.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/spec/model/keys.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::spec {

class KeyReader {
 public:
  // `models_folder` holds the presets that a model may name.
  KeyReader(YamlMap map, std::string models_folder)
      : map_(std::move(map)), models_folder_(std::move(models_folder)) {}

  KeyReader& when(bool /*is_written*/) { return *this; }
  KeyReader& usually(const char* /*text*/) { return *this; }

  template <typename Integer>
  void count(const char* key, Integer& x, Accepted accepted, const char* /*help*/) {
    map_.read_count(key, x, accepted.least, accepted.most);
  }
  void count_or_all(const char* key, int64_t& x, int64_t least, int64_t all, const char* help);
  void seed(const char* key, uint64_t& x, const char* /*help*/) { map_.read_seed(key, x); }
  template <typename Real>  // double, or an optional one
  void real(const char* key, Real& x, const char* /*help*/) {
    map_.read_real(key, x);
  }
  void seconds(const char* key, double& x, const char* /*help*/) { map_.read_seconds(key, x); }
  void flag(const char* key, bool& x, const char* /*help*/) { map_.read_flag(key, x); }
  void text(const char* key, std::string& x, const char* /*help*/) { map_.read_text(key, x); }
  void texts(const char* key, std::vector<std::string>& list, const char* /*help*/) {
    map_.read_texts(key, list);
  }
  void counts(const char* key, std::vector<int64_t>& list, const char* /*help*/) {
    map_.read_counts(key, list);
  }
  template <typename Flags>
  void flags(const char* key, const Flags& flags, const char* /*help*/) {
    std::vector<std::string> known;
    known.reserve(flags.size());
    for (const auto& flag : flags) known.emplace_back(flag.name);
    for (const size_t i : read_names(key, known)) *flags[i].value = true;
  }
  template <typename Enum>
  void choice(const char* key, Enum& x, const Names<Enum>& names, const char* /*help*/) {
    map_.read_choice(key, x, names);
  }
  void blend(const char* key, CorpusBlend& x, const char* help);
  void parts(const char* key, Recompute& recompute, const char* help);
  void model(const char* key, ModelConfig& x, const char* help);
  void model(const char* key, std::optional<ModelConfig>& x, const char* help);

  template <typename Keys>
  void section(const char* key, const Keys& keys, const char* /*help*/) {
    KeyReader inner(map_.map(key), models_folder_);
    keys(inner);
    inner.map_.finish();
  }
  template <typename Enum, typename Keys>
  void choice_or_section(const char* key, Enum& x, const Names<Enum>& names, bool /*is_choice*/,
                         const Keys& keys, const char* help) {
    const YAML::Node node = map_.node(key);
    if (node.IsDefined() && node.IsMap()) {
      section(key, keys, help);
    } else {
      choice(key, x, names, help);
    }
  }

  YamlMap& map() { return map_; }

 private:
  // Indices into `known` of the names in a list.
  std::vector<size_t> read_names(const char* key, const std::vector<std::string>& known);

  YamlMap map_;
  std::string models_folder_;
};

}  // namespace tutti::spec
