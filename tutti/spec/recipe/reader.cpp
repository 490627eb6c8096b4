#include "tutti/spec/model/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tutti/base/text.h"
#include "tutti/spec/recipe/key_reader.h"
#include "tutti/spec/recipe/keys.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::spec {
namespace {

// Expert parallel ranks are taken from those of dp * cp: the fewest of them that there can be. An
// ep that is itself impossible stays what is wrong.
void derive_dp(const ModelConfig& model, Mesh& mesh) {
  if (model.moe.experts == 0 || model.moe.experts % mesh.ep != 0) return;
  const int64_t least = mesh.ep / std::gcd(mesh.ep, mesh.cp);
  if (mesh.dp % least != 0) mesh.dp = least;
}

}  // namespace

void KeyReader::count_or_all(const char* key, int64_t& x, int64_t least, int64_t all,
                             const char* /*help*/) {
  const YAML::Node node = map_.node(key);
  if (node.IsDefined() && node.IsScalar() && node.Scalar() == "all") {
    x = all;
  } else {
    map_.read_count(key, x, least, INT64_MAX);
  }
}

std::vector<size_t> KeyReader::read_names(const char* key, const std::vector<std::string>& known) {
  std::vector<std::string> names;
  map_.read_texts(key, names);
  std::vector<size_t> indices;
  for (const std::string& name : names) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) {
      map_.fail_key(
          key, fmt::format("'{}' is unknown; accepted: a list of {}", name, join(known, ", ")));
    }
    indices.push_back(static_cast<size_t>(found - known.begin()));
  }
  return indices;
}

void KeyReader::blend(const char* key, CorpusBlend& x, const char* /*help*/) {
  if (!map_.has(key) || !map_.node(key).IsSequence()) {
    std::string prefix;
    map_.read_text(key, prefix);
    x = CorpusBlend(prefix);
    return;
  }
  std::vector<CorpusShare> shares;
  for (YamlMap& item : map_.items(key)) {
    CorpusShare share;
    item.read_text("prefix", share.prefix);
    item.read_real("weight", share.weight);
    item.finish();
    shares.push_back(share);
  }
  x = CorpusBlend(std::move(shares));
}

void KeyReader::parts(const char* key, Recompute& recompute, const char* /*help*/) {
  if (!map_.has(key)) return;
  if (!map_.has("mode")) recompute.mode = RecomputeMode::selective;
  const YAML::Node node = map_.node(key);
  recompute.parts = 0;
  if (node.IsScalar() && node.Scalar() == "default") return;
  std::vector<std::string> known;
  for (const auto& [name, part] : kPartNames) known.push_back(name);
  if (!node.IsSequence() || node.size() == 0) {
    map_.fail_key(key, "expected a list of " + join(known, ", ") + "; or default");
  }
  for (const size_t i : read_names(key, known)) recompute.parts |= kPartNames[i].second;
}

void KeyReader::model(const char* key, ModelConfig& x, const char* /*help*/) {
  x = read_model_node(map_.node(key), map_.path_of(key), map_.origin(), models_folder_);
}

void KeyReader::model(const char* key, std::optional<ModelConfig>& x, const char* /*help*/) {
  const YAML::Node node = map_.node(key);
  if (node.IsDefined()) x = read_model_node(node, map_.path_of(key), map_.origin(), models_folder_);
}

Recipe parse_recipe(const std::string& text, const std::string& origin,
                    const std::vector<std::string>& overrides, const std::string& models_folder,
                    bool dp_is_open) {
  YAML::Node root = parse_yaml(text, origin);
  YamlMap unchanged(root, "", origin);  // rejects repeated keys before overrides would hide them
  for (const std::string& assignment : overrides) apply_override(root, assignment);

  KeyReader reader(YamlMap(root, "", origin), models_folder);
  Recipe recipe;
  recipe_keys(reader, recipe);
  reader.map().finish();

  YamlMap parallel = reader.map().map("parallel");
  std::string schedule;
  parallel.read_text("schedule", schedule);
  if (schedule == "interleaved" && recipe.parallel.vpp == 1) {
    parallel.fail_key("schedule", "interleaved needs parallel.vpp above 1");
  }
  if (dp_is_open || !parallel.has("dp")) derive_dp(recipe.model, recipe.parallel);
  resolve(recipe);
  validate(recipe);
  return recipe;
}

}  // namespace tutti::spec
