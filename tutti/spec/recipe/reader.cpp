#include "tutti/spec/model/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::spec {
namespace {

constexpr int64_t kMost = INT64_MAX;

void read_lora(YamlMap map, LoraConfig& lora) {
  map.read_count("rank", lora.rank, 0, kMost);
  map.read_real("alpha", lora.alpha);
  map.read_real("dropout", lora.dropout);
  map.read_texts("targets", lora.targets);
  map.finish();
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

void read_offload(YamlMap map, Offload& offload) {
  map.read_flag("optimizer", offload.optimizer);
  const YAML::Node activations = map.node("activations");
  if (activations.IsDefined() && activations.IsScalar() && activations.Scalar() == "all") {
    offload.activations = kEveryLayer;
  } else {
    map.read_count("activations", offload.activations, 0, kMost);
  }
  map.finish();
}

void read_precision(YamlMap& root, const std::string& origin, Recipe& recipe) {
  const YAML::Node node = root.node("precision");
  if (!node.IsDefined() || !node.IsMap()) {
    root.read_choice("precision", recipe.precision, kPrecisionNames);
    return;
  }
  YamlMap map(node, "precision", origin);
  map.read_choice("compute", recipe.precision, kPrecisionNames);
  map.read_count("wide_first", recipe.narrow.wide_first, 0, kMost);
  map.read_count("wide_last", recipe.narrow.wide_last, 0, kMost);
  map.read_flag("head", recipe.narrow.head);
  map.read_flag("stochastic_gradients", recipe.narrow.stochastic_gradients);
  map.finish();
}

// Whether dp is written.
bool read_parallel(YamlMap map, Mesh& mesh) {
  const bool has_dp = map.has("dp");
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
  return has_dp;
}

// Expert parallel ranks are taken from those of dp * cp: the fewest of them that there can be. An
// ep that is itself impossible stays what is wrong.
void derive_dp(const ModelConfig& model, Mesh& mesh) {
  if (model.moe.experts == 0 || model.moe.experts % mesh.ep != 0) return;
  const int64_t least = mesh.ep / std::gcd(mesh.ep, mesh.cp);
  if (mesh.dp % least != 0) mesh.dp = least;
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
  map.read_choice("master", optimizer.master, kMasterNames);
  map.read_flag("stochastic_rounding", optimizer.stochastic_rounding);
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
  map.read_text("key_file", checkpoint.key_file);
  map.read_count("sample_tokens", checkpoint.sample_tokens, 0, kMost);
  map.read_text("sample_prompt", checkpoint.sample_prompt);
  map.finish();
}

void read_telemetry(YamlMap map, TelemetryConfig& telemetry) {
  map.read_count("metrics_port", telemetry.metrics_port, 0, 65535);
  map.read_text("metrics_address", telemetry.metrics_address);
  map.read_seconds("gpu_every_seconds", telemetry.gpu_every_seconds);
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

void read_prepare(YamlMap map, PrepareConfig& prepare) {
  map.read_text("source", prepare.source);
  map.read_text("xxh3", prepare.xxh3);
  map.read_text("tokenizer", prepare.tokenizer);
  map.read_real("holdout", prepare.holdout);
  map.read_text("folder", prepare.folder);
  map.finish();
}

void read_data(YamlMap map, DataConfig& data) {
  read_blend(map, "train", data.train);
  read_blend(map, "validation", data.validation);
  map.read_choice("packing", data.packing, kPackingNames);
  read_prepare(map.map("prepare"), data.prepare);
  map.finish();
}

void read_batch(YamlMap map, BatchConfig& batch) {
  map.read_count("global", batch.global, 1, kMost);
  map.read_count("micro", batch.micro, 0, kMost);
  map.read_count("sequence", batch.sequence, 0, kMost);
  map.finish();
}

}  // namespace

Recipe parse_recipe(const std::string& text, const std::string& origin,
                    const std::vector<std::string>& overrides, const std::string& models_folder,
                    bool dp_is_open) {
  YAML::Node root = parse_yaml(text, origin);
  YamlMap unchanged(root, "", origin);  // rejects repeated keys before overrides would hide them
  for (const std::string& assignment : overrides) apply_override(root, assignment);

  YamlMap map(root, "", origin);
  Recipe recipe;
  recipe.model = read_model_node(map.node("model"), "model", origin, models_folder);
  read_lora(map.map("lora"), recipe.lora);
  read_distill(map.map("distill"), recipe.distill, origin, models_folder);
  read_precision(map, origin, recipe);
  map.read_choice("device", recipe.device, Names<std::string>{{"cpu", "cpu"}, {"cuda", "cuda"}});
  map.read_flag("deterministic", recipe.deterministic);
  map.read_count("threads", recipe.threads, 0, 4096);
  recipe.recompute = read_recompute(map, origin);
  read_offload(map.map("offload"), recipe.offload);
  read_data(map.map("data"), recipe.data);
  read_batch(map.map("batch"), recipe.batch);
  read_optimizer(map.map("optimizer"), recipe.optimizer);
  read_schedule(map.map("schedule"), recipe.schedule);
  read_train(map.map("train"), recipe.train);
  read_evaluate(map.map("evaluate"), recipe.evaluate);
  read_checkpoint(map.map("checkpoint"), recipe.checkpoint);
  const bool has_dp = read_parallel(map.map("parallel"), recipe.parallel);
  if (dp_is_open || !has_dp) derive_dp(recipe.model, recipe.parallel);
  read_telemetry(map.map("telemetry"), recipe.telemetry);
  read_mlperf(map.map("mlperf"), recipe.mlperf);
  read_run(map.map("run"), recipe.run);
  map.finish();
  resolve(recipe);
  validate(recipe);
  return recipe;
}

}  // namespace tutti::spec
