#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/spec/recipe.h"
#include "tutti/spec/recipe_names.h"
#include "tutti/spec/yaml_map.h"

namespace tutti::spec {
namespace {

constexpr int64_t kMost = INT64_MAX;
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
  map.read_count("original_context", scaling.original_context, 1, kMost);
  map.finish();
}

void read_latent(YamlMap map, LatentAttention& latent) {
  map.read_count("query_rank", latent.query_rank, 0, kMost);
  map.read_count("key_value_rank", latent.key_value_rank, 0, kMost);
  map.read_count("nope_head_dim", latent.nope_head_dim, 0, kMost);
  map.read_count("rope_head_dim", latent.rope_head_dim, 0, kMost);
  map.read_count("value_head_dim", latent.value_head_dim, 0, kMost);
  map.finish();
}

void read_moe(YamlMap map, MixtureOfExperts& moe) {
  map.read_count("experts", moe.experts, 0, kMost);
  map.read_count("top_k", moe.top_k, 0, kMost);
  map.read_count("expert_ffn", moe.expert_ffn, 0, kMost);
  map.read_count("shared_experts", moe.shared_experts, 0, kMost);
  map.read_count("first_dense_layers", moe.first_dense_layers, 0, kMost);
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
                          "prediction_layers"}) {
    map.has(key);
  }
  map.finish();
  for (const char* key : {"layers", "hidden", "heads", "vocabulary", "context"}) {
    if (!map.has(key)) map.fail_key(key, "missing; a model needs it (or a preset)");
  }
  map.read_text("name", model.name);
  map.read_count("layers", model.layers, 1, kMost);
  map.read_count("hidden", model.hidden, 1, kMost);
  map.read_count("heads", model.heads, 1, kMost);
  map.read_count("vocabulary", model.vocabulary, 1, kMost);
  map.read_count("context", model.context, 1, kMost);
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
  map.read_count("head_dim", model.head_dim, 1, kMost);
  model.kv_heads = model.heads;
  map.read_count("kv_heads", model.kv_heads, 1, kMost);
  if (!map.has("ffn") && model.activation == Activation::swiglu) {
    map.fail_key("ffn", "missing; activation swiglu has no usual width to fall back to");
  }
  model.ffn = 4 * model.hidden;
  map.read_count("ffn", model.ffn, 1, kMost);

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
  map.read_count("prediction_layers", model.prediction_layers, 0, kMost);
  return model;
}

void read_lora(YamlMap map, LoraConfig& lora) {
  map.read_count("rank", lora.rank, 0, kMost);
  map.read_real("alpha", lora.alpha);
  map.read_real("dropout", lora.dropout);
  map.read_texts("targets", lora.targets);
  map.finish();
}

// `path`: of the key, "model" or "distill.model".
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

void read_distill(YamlMap map, DistillConfig& distill, const std::string& origin,
                  const std::string& folder) {
  map.read_text("teacher", distill.teacher);
  map.read_real("temperature", distill.temperature);
  map.read_real("weight", distill.weight);
  const YAML::Node model = map.node("model");
  if (model.IsDefined()) distill.model = read_model_node(model, "distill.model", origin, folder);
  map.finish();
}

Parts read_parts(YamlMap& map, const YAML::Node& node) {
  std::vector<std::string> known;
  for (const auto& [name, part] : kPartNames) known.push_back(name);
  const std::string accepted = "a list of " + join(known, ", ") + "; or default";
  if (node.IsScalar() && node.Scalar() == "default") return 0;
  if (!node.IsSequence() || node.size() == 0) map.fail_key("parts", "expected " + accepted);
  Parts parts = 0;
  for (const YAML::Node& entry : node) {
    const std::string name = entry.IsScalar() ? entry.Scalar() : "";
    const auto found = std::find_if(kPartNames.begin(), kPartNames.end(),
                                    [&](const auto& part) { return part.first == name; });
    if (found == kPartNames.end()) {
      map.fail_key("parts", fmt::format("'{}' is unknown; accepted: {}", name, accepted));
    }
    parts |= found->second;
  }
  return parts;
}

Recompute read_recompute(YamlMap& root, const std::string& origin) {
  Recompute recompute;
  const YAML::Node node = root.node("recompute");
  if (!node.IsDefined() || !node.IsMap()) {
    root.read_choice("recompute", recompute.mode, kRecomputeNames);
    return recompute;
  }
  YamlMap map(node, "recompute", origin);
  if (map.has("parts")) {
    recompute.mode = RecomputeMode::selective;
    recompute.parts = read_parts(map, map.node("parts"));
  }
  map.read_choice("mode", recompute.mode, kRecomputeNames);
  const YAML::Node layers = map.node("layers");
  if (!layers.IsDefined() || !layers.IsScalar() || layers.Scalar() != "all") {
    map.read_count("layers", recompute.layers, 1, kMost);
  }
  map.finish();
  return recompute;
}

void read_parallel(YamlMap map, Mesh& mesh) {
  map.read_count("dp", mesh.dp, 1, kMost);
  map.read_count("tp", mesh.tp, 1, kMost);
  map.read_count("pp", mesh.pp, 1, kMost);
  map.read_count("vpp", mesh.vpp, 1, kMost);
  map.read_count("cp", mesh.cp, 1, kMost);
  map.read_count("ep", mesh.ep, 1, kMost);
  int64_t expert_room_percent = mesh.expert_room_percent;
  map.read_count("expert_room_percent", expert_room_percent, 0, 1'000'000);
  mesh.expert_room_percent = static_cast<int32_t>(expert_room_percent);
  map.read_count("zero", mesh.zero, 0, 3);
  std::string schedule;
  if (map.has("schedule")) map.read_text("schedule", schedule);
  map.read_choice("schedule", mesh.pipeline, kPipelineNames);
  if (schedule == "interleaved" && mesh.vpp == 1) {
    map.fail_key("schedule", "interleaved needs parallel.vpp above 1");
  }
  map.finish();
}

void read_run(YamlMap map, RunConfig& run) {
  map.read_text("name", run.name);
  map.read_text("owner", run.owner);
  map.read_text("project", run.project);
  map.read_text("data_class", run.data_class);
  YamlMap budget = map.map("budget");
  budget.read_real("hours", run.budget.hours);
  budget.read_real("usd", run.budget.usd);
  budget.read_real("kwh", run.budget.kwh);
  budget.read_real("usd_per_hour", run.budget.usd_per_hour);
  budget.read_real("average_watts", run.budget.average_watts);
  budget.finish();
  map.finish();
}

void read_optimizer(YamlMap map, OptimizerConfig& optimizer) {
  map.read_real("learning_rate", optimizer.learning_rate);
  map.read_count("reference_batch", optimizer.reference_batch, 0, kMost);
  map.read_real("beta1", optimizer.beta1);
  map.read_real("beta2", optimizer.beta2);
  map.read_real("epsilon", optimizer.epsilon);
  map.read_real("weight_decay", optimizer.weight_decay);
  map.read_real("clip_norm", optimizer.clip_norm);
  map.finish();
}

void read_schedule(YamlMap map, ScheduleConfig& schedule) {
  map.read_choice("kind", schedule.kind, kScheduleNames);
  map.read_count("warmup_steps", schedule.warmup_steps, 0, kMost);
  map.read_choice("warmup_form", schedule.warmup_form, kWarmupNames);
  map.read_count("decay_steps", schedule.decay_steps, 0, kMost);
  map.read_real("minimum_ratio", schedule.minimum_ratio);
  map.read_count("start_step", schedule.start_step, 0, kMost);
  map.read_count("reference_batch", schedule.reference_batch, 0, kMost);
  map.finish();
}

void read_train(YamlMap map, TrainConfig& train) {
  map.read_count("steps", train.steps, 1, kMost);
  map.read_seed("seed", train.seed);
  map.read_count("stop_after_nonfinite", train.stop_after_nonfinite, 1, kMost);
  map.read_real("target_loss", train.target_validation_loss);
  map.finish();
}

void read_evaluate(YamlMap map, EvaluateConfig& evaluate) {
  map.read_count("every_steps", evaluate.every_steps, 0, kMost);
  map.read_count("every_samples", evaluate.every_samples, 0, kMost);
  map.read_count("skip_first", evaluate.skip_first, 0, kMost);
  map.read_count("samples", evaluate.samples, 0, kMost);
  map.finish();
}

void read_checkpoint(YamlMap map, CheckpointConfig& checkpoint) {
  map.read_count("every_steps", checkpoint.every_steps, 0, kMost);
  map.read_seconds("every_seconds", checkpoint.every_seconds);
  map.read_count("keep_last", checkpoint.keep_last, 1, kMost);
  map.read_count("keep_best", checkpoint.keep_best, 0, kMost);
  map.read_text("initialize_from", checkpoint.initialize_from);
  map.finish();
}

void read_telemetry(YamlMap map, TelemetryConfig& telemetry) {
  map.read_count("metrics_port", telemetry.metrics_port, 0, 65535);
  map.read_text("metrics_address", telemetry.metrics_address);
  map.finish();
}

void read_mlperf(YamlMap map, MlperfConfig& mlperf) {
  map.read_text("benchmark", mlperf.benchmark);
  map.read_text("division", mlperf.division);
  map.read_text("organization", mlperf.organization);
  map.read_text("platform", mlperf.platform);
  map.read_text("status", mlperf.status);
  map.read_flag("clear_all", mlperf.clear_all);
  map.finish();
}

void read_blend(YamlMap& map, const std::string& key, CorpusBlend& blend) {
  if (!map.has(key) || !map.node(key).IsSequence()) {
    std::string prefix;
    map.read_text(key, prefix);
    blend = CorpusBlend(prefix);
    return;
  }
  std::vector<CorpusShare> shares;
  for (YamlMap& item : map.items(key)) {
    CorpusShare share;
    item.read_text("prefix", share.prefix);
    item.read_real("weight", share.weight);
    item.finish();
    shares.push_back(share);
  }
  blend = CorpusBlend(std::move(shares));
}

void read_data(YamlMap map, DataConfig& data) {
  read_blend(map, "train", data.train);
  read_blend(map, "validation", data.validation);
  map.read_choice("packing", data.packing, kPackingNames);
  map.finish();
}

void read_batch(YamlMap map, BatchConfig& batch) {
  map.read_count("global", batch.global, 1, kMost);
  map.read_count("micro", batch.micro, 0, kMost);
  map.read_count("sequence", batch.sequence, 0, kMost);
  map.finish();
}

}  // namespace

ModelConfig load_model_preset(const std::string& name, const std::string& models_folder) {
  ModelConfig model = read_model(
      YamlMap(preset_node(name, models_folder), "model", preset_path(name, models_folder)));
  validate(model);
  return model;
}

Recipe parse_recipe(const std::string& text, const std::string& origin,
                    const std::vector<std::string>& overrides, const std::string& models_folder) {
  YAML::Node root = parse_yaml(text, origin);
  YamlMap unchanged(root, "", origin);  // rejects repeated keys before overrides would hide them
  for (const std::string& assignment : overrides) apply_override(root, assignment);

  YamlMap map(root, "", origin);
  Recipe recipe;
  recipe.model = read_model_node(map.node("model"), "model", origin, models_folder);
  read_lora(map.map("lora"), recipe.lora);
  read_distill(map.map("distill"), recipe.distill, origin, models_folder);
  map.read_choice("precision", recipe.precision, kPrecisionNames);
  map.read_choice("device", recipe.device, Names<std::string>{{"cpu", "cpu"}, {"cuda", "cuda"}});
  map.read_count("threads", recipe.threads, 0, 4096);
  recipe.recompute = read_recompute(map, origin);
  read_data(map.map("data"), recipe.data);
  read_batch(map.map("batch"), recipe.batch);
  read_optimizer(map.map("optimizer"), recipe.optimizer);
  read_schedule(map.map("schedule"), recipe.schedule);
  read_train(map.map("train"), recipe.train);
  read_evaluate(map.map("evaluate"), recipe.evaluate);
  read_checkpoint(map.map("checkpoint"), recipe.checkpoint);
  read_parallel(map.map("parallel"), recipe.parallel);
  read_telemetry(map.map("telemetry"), recipe.telemetry);
  read_mlperf(map.map("mlperf"), recipe.mlperf);
  read_run(map.map("run"), recipe.run);
  map.finish();
  resolve(recipe);
  validate(recipe);
  return recipe;
}

}  // namespace tutti::spec
