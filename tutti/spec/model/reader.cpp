#include "tutti/spec/model/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::spec {
namespace {

constexpr int64_t kMostCount = INT64_MAX;
constexpr const char* kPresetSuffix = ".yaml";

// The file of preset `name`, which is a path itself when it ends in .yaml.
std::string preset_path(const std::string& name, const std::string& folder) {
  return ends_with(name, kPresetSuffix) ? name : join_path(folder, name + kPresetSuffix);
}

// Throws not_found unless `folder` holds the preset `name`.
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

// The mapping of preset `name`.
YAML::Node preset_node(const std::string& name, const std::string& folder) {
  const std::string path = preset_path(name, folder);
  if (path != name) check_preset(name, folder);
  YAML::Node node = parse_yaml(read_file(posix_file_system(), path), path);
  if (!node.IsMap()) fail(ErrorKind::usage, "{}: a preset must be a mapping", path);
  if (!node["name"].IsDefined()) node["name"] = name;
  return node;
}

// `over` wins key by key; mappings merge.
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

void read_rope_scaling(YamlMap map, RopeScaling& scaling) {
  map.read_real("factor", scaling.factor);
  map.read_real("low_frequency_factor", scaling.low_frequency_factor);
  map.read_real("high_frequency_factor", scaling.high_frequency_factor);
  map.read_count("original_context", scaling.original_context, 1, kMostCount);
  map.read_choice("kind", scaling.kind, kRopeScalingNames);
  map.read_real("fast_turns", scaling.fast_turns);
  map.read_real("slow_turns", scaling.slow_turns);
  map.read_real("amplitude", scaling.amplitude);
  map.finish();
}

void read_biases(YamlMap& map, ProjectionBiases& biases) {
  std::vector<std::string> names;
  map.read_texts("biases", names);
  for (const std::string& name : names) {
    bool* bias = name == "qkv"      ? &biases.qkv
                 : name == "output" ? &biases.output
                 : name == "up"     ? &biases.up
                 : name == "down"   ? &biases.down
                                    : nullptr;
    if (bias == nullptr) {
      map.fail_key("biases",
                   fmt::format("'{}' is no projection; accepted: qkv, output, up, down", name));
    }
    *bias = true;
  }
}

void read_parts(YamlMap& map, ModelConfig& model) {
  read_biases(map, model.biases);
  map.read_choice("norm_placement", model.norm_placement, kNormPlacementNames);
  map.read_real("norm_offset", model.norm_offset);
  map.read_choice("query_key_norm", model.query_key_norm, kQueryKeyNormNames);
  map.read_real("attention_scale", model.attention_scale);
  map.read_real("attention_softcap", model.attention_softcap);
  map.read_real("logit_softcap", model.logit_softcap);
  map.read_real("embedding_multiplier", model.embedding_multiplier);
  map.read_real("residual_multiplier", model.residual_multiplier);
  map.read_real("logit_divisor", model.logit_divisor);
  map.read_count("window", model.window, 0, kMostCount);
  map.read_counts("global_layers", model.global_layers);
  map.read_real("window_rope_theta", model.window_rope_theta);
  map.read_count("rotated_dims", model.rotated_dims, 0, kMostCount);
  map.read_counts("unrotated_layers", model.unrotated_layers);
}

void read_latent(YamlMap map, LatentAttention& latent) {
  map.read_count("query_rank", latent.query_rank, 0, kMostCount);
  map.read_count("key_value_rank", latent.key_value_rank, 0, kMostCount);
  map.read_count("nope_head_dim", latent.nope_head_dim, 0, kMostCount);
  map.read_count("rope_head_dim", latent.rope_head_dim, 0, kMostCount);
  map.read_count("value_head_dim", latent.value_head_dim, 0, kMostCount);
  map.finish();
}

void read_moe(YamlMap map, MixtureOfExperts& moe) {
  map.read_count("experts", moe.experts, 0, kMostCount);
  map.read_count("top_k", moe.top_k, 0, kMostCount);
  map.read_count("expert_ffn", moe.expert_ffn, 0, kMostCount);
  map.read_count("shared_experts", moe.shared_experts, 0, kMostCount);
  map.read_count("first_dense_layers", moe.first_dense_layers, 0, kMostCount);
  map.read_real("capacity_factor", moe.capacity_factor);
  map.read_real("balance_loss", moe.balance_loss);
  map.read_real("z_loss", moe.z_loss);
  map.read_flag("router_bias", moe.router_bias);
  map.read_real("router_bias_rate", moe.router_bias_rate);
  map.finish();
}

ModelConfig read_model(YamlMap map) {
  ModelConfig model;
  // Misspelt keys are reported before the ones they leave missing.
  for (const char* key : {"name",
                          "layers",
                          "hidden",
                          "heads",
                          "kv_heads",
                          "head_dim",
                          "ffn",
                          "vocabulary",
                          "context",
                          "norm",
                          "norm_epsilon",
                          "norm_bias",
                          "activation",
                          "positions",
                          "attention",
                          "linear_bias",
                          "tied_embeddings",
                          "rope_theta",
                          "rope_scaling",
                          "init_std",
                          "dropout",
                          "latent",
                          "moe",
                          "prediction_layers",
                          "biases",
                          "norm_placement",
                          "norm_offset",
                          "query_key_norm",
                          "attention_scale",
                          "attention_softcap",
                          "logit_softcap",
                          "embedding_multiplier",
                          "residual_multiplier",
                          "logit_divisor",
                          "window",
                          "global_layers",
                          "window_rope_theta",
                          "rotated_dims",
                          "unrotated_layers"}) {
    map.has(key);
  }
  map.finish();
  for (const char* key : {"layers", "hidden", "heads", "vocabulary", "context"}) {
    if (!map.has(key)) map.fail_key(key, "missing; a model needs it (or a preset)");
  }
  map.read_text("name", model.name);
  map.read_count("layers", model.layers, 1, kMostCount);
  map.read_count("hidden", model.hidden, 1, kMostCount);
  map.read_count("heads", model.heads, 1, kMostCount);
  map.read_count("vocabulary", model.vocabulary, 1, kMostCount);
  map.read_count("context", model.context, 1, kMostCount);
  map.read_choice("norm", model.norm, kNormNames);
  map.read_real("norm_epsilon", model.norm_epsilon);
  map.read_choice("activation", model.activation, kActivationNames);
  map.read_choice("positions", model.positions, kPositionsNames);
  map.read_choice("attention", model.attention, kAttentionNames);

  const bool has_head_dim = map.has("head_dim");
  if (!has_head_dim && model.hidden % model.heads != 0) {
    map.fail_key("heads", fmt::format("{} does not divide model.hidden {}; choose another or give "
                                      "model.head_dim",
                                      model.heads, model.hidden));
  }
  model.head_dim = model.hidden / model.heads;
  map.read_count("head_dim", model.head_dim, 1, kMostCount);
  model.kv_heads = model.heads;
  map.read_count("kv_heads", model.kv_heads, 1, kMostCount);
  if (!map.has("ffn") && is_gated(model)) {
    map.fail_key("ffn", fmt::format("missing; activation {} has no usual width to fall back to",
                                    name_of(kActivationNames, model.activation)));
  }
  model.ffn = 4 * model.hidden;
  map.read_count("ffn", model.ffn, 1, kMostCount);

  map.read_flag("linear_bias", model.linear_bias);
  model.norm_bias = model.norm == Norm::layer;
  map.read_flag("norm_bias", model.norm_bias);
  map.read_flag("tied_embeddings", model.tied_embeddings);
  map.read_real("rope_theta", model.rope_theta);
  read_rope_scaling(map.map("rope_scaling"), model.rope_scaling);
  map.read_real("init_std", model.init_std);
  map.read_real("dropout", model.dropout);
  read_latent(map.map("latent"), model.latent);
  read_moe(map.map("moe"), model.moe);
  map.read_count("prediction_layers", model.prediction_layers, 0, kMostCount);
  read_parts(map, model);
  return model;
}

}  // namespace

ModelConfig read_model_node(const YAML::Node& node, const char* path, const std::string& origin,
                            const std::string& models_folder) {
  if (!node.IsDefined() || node.IsNull()) {
    fail(ErrorKind::usage, "{}: {}: missing; name a preset (model: gpt2-124m) or describe one",
         origin, path);
  }
  if (node.IsScalar()) return load_model_preset(node.Scalar(), models_folder);
  YamlMap map(node, path, origin);  // rejects lists and repeated keys
  if (!map.has("preset")) return read_model(std::move(map));
  std::string preset;
  map.read_text("preset", preset);
  YAML::Node over = YAML::Clone(node);
  over.remove("preset");
  YAML::Node merged = preset_node(preset, models_folder);
  merge(merged, over);
  return read_model(YamlMap(merged, path, origin));
}

ModelConfig load_model_preset(const std::string& name, const std::string& models_folder) {
  ModelConfig model = read_model(
      YamlMap(preset_node(name, models_folder), "model", preset_path(name, models_folder)));
  validate(model);
  return model;
}

}  // namespace tutti::spec
