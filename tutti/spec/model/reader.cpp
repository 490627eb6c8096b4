#include "tutti/spec/model/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/spec/model/keys.h"
#include "tutti/spec/recipe/key_reader.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::spec {
namespace {

constexpr const char* kPresetSuffix = ".yaml";

// The file of preset `name`, which is itself a path if it ends in .yaml.
std::string preset_path(const std::string& name, const std::string& folder) {
  return ends_with(name, kPresetSuffix) ? name : join_path(folder, name + kPresetSuffix);
}

// Throws not_found unless `folder` contains preset `name`.
void check_preset(const std::string& name, const std::string& folder) {
  FileSystem& files = posix_file_system();
  std::vector<std::string> known;
  if (files.is_directory(folder)) {
    for (const DirectoryEntry& entry : files.list(folder)) {
      if (!entry.is_directory && ends_with(entry.name, kPresetSuffix)) {
        known.push_back(
            entry.name.substr(0, entry.name.size() - std::string(kPresetSuffix).size()));
      }
    }
  }
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    const std::string suggestion = nearest_word(name, known);
    fail(ErrorKind::not_found, "model: no preset '{}' in {};{} known: {}", name, folder,
         suggestion.empty() ? "" : " did you mean '" + suggestion + "'?",
         known.empty() ? "none" : join(known, ", "));
  }
}

// The YAML mapping of preset `name`.
YAML::Node preset_node(const std::string& name, const std::string& folder) {
  const std::string path = preset_path(name, folder);
  if (path != name) check_preset(name, folder);
  YAML::Node node = parse_yaml(read_file(posix_file_system(), path), path);
  if (!node.IsMap()) fail(ErrorKind::usage, "{}: a preset must be a mapping", path);
  if (!node["name"].IsDefined()) node["name"] = name;
  return node;
}

// `over` overrides key by key; mappings are merged.
void merge(YAML::Node base, const YAML::Node& over) {
  for (const auto& entry : over) {
    const std::string key = entry.first.as<std::string>();
    if (entry.second.IsMap() && base[key].IsDefined() && base[key].IsMap()) {
      merge(base[key], entry.second);
    } else {
      base[key] = entry.second;
    }
  }
}

ModelConfig read_model(YamlMap given, const std::string& models_folder) {
  KeyReader reader(std::move(given), models_folder);
  ModelConfig model;
  model_keys(reader, model);
  YamlMap& map = reader.map();
  map.finish();  // report misspelt keys before the keys that are then missing
  for (const char* key : {"layers", "hidden", "heads", "vocabulary", "context"}) {
    if (!map.has(key)) map.fail_key(key, "missing; set it or name a preset");
  }
  if (!map.has("head_dim") && model.attention == Attention::latent) {
    model.head_dim = std::max<int64_t>(model.latent.nope_head_dim, 1);  // read by nothing
  } else if (!map.has("head_dim")) {
    if (model.hidden % model.heads != 0) {
      map.fail_key("heads",
                   fmt::format("{} does not divide model.hidden {}; write another number or "
                               "set model.head_dim",
                               model.heads, model.hidden));
    }
    model.head_dim = model.hidden / model.heads;
  }
  if (!map.has("kv_heads")) model.kv_heads = model.heads;
  if (!map.has("ffn")) {
    if (is_gated(model)) {
      map.fail_key("ffn", fmt::format("missing; activation {} has no default width",
                                      name_of(kActivationNames, model.activation)));
    }
    model.ffn = 4 * model.hidden;
  }
  if (!map.has("norm_bias")) model.norm_bias = model.norm == Norm::layer;
  return model;
}

}  // namespace

ModelConfig read_model_node(const YAML::Node& node, const std::string& path,
                            const std::string& origin, const std::string& models_folder) {
  if (!node.IsDefined() || node.IsNull()) {
    fail(ErrorKind::usage, "{}: {}: missing; name a preset (model: gpt2-124m) or describe one",
         origin, path);
  }
  if (node.IsScalar()) return load_model_preset(node.Scalar(), models_folder);
  YamlMap map(node, path, origin);  // rejects lists and repeated keys
  if (!map.has("preset")) return read_model(std::move(map), models_folder);
  std::string preset;
  map.read_text("preset", preset);
  YAML::Node over = YAML::Clone(node);
  over.remove("preset");
  YAML::Node merged = preset_node(preset, models_folder);
  merge(merged, over);
  return read_model(YamlMap(merged, path, origin), models_folder);
}

ModelConfig load_model_preset(const std::string& name, const std::string& models_folder) {
  ModelConfig model = read_model(
      YamlMap(preset_node(name, models_folder), "model", preset_path(name, models_folder)),
      models_folder);
  validate(model);
  return model;
}

}  // namespace tutti::spec
