#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <type_traits>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {
namespace {

// Always in double quotes, so that no text is taken for a number, a flag or a comment.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

class YamlWriter {
 public:
  void open(const char* key) {
    line(key, "");
    ++depth_;
  }
  void close() { --depth_; }

  template <typename T>
  void value(const char* key, const T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      line(key, x ? " true" : " false");
    } else if constexpr (std::is_same_v<T, std::string>) {
      line(key, fmt::format(" {}", quoted(x)));
    } else {
      line(key, fmt::format(" {}", x));  // shortest text that reads back equal
    }
  }
  void texts(const char* key, const std::vector<std::string>& list) {
    std::vector<std::string> items;
    items.reserve(list.size());
    for (const std::string& text : list) items.push_back(quoted(text));
    line(key, fmt::format(" [{}]", join(items, ", ")));
  }
  template <typename Enum>
  void name(const char* key, const Names<Enum>& names, Enum x) {
    line(key, fmt::format(" {}", name_of(names, x)));
  }
  // A value that is YAML already.
  void plain(const char* key, const std::string& yaml) { line(key, " " + yaml); }
  // One prefix, or a list on one line.
  void blend(const char* key, const CorpusBlend& x) {
    if (x.empty()) return value(key, std::string());
    if (x.corpora.size() == 1 && x.corpora[0].weight == 1) return value(key, x.corpora[0].prefix);
    std::string list;
    for (const CorpusShare& share : x.corpora) {
      list += fmt::format("{}{{prefix: {}, weight: {}}}", list.empty() ? "" : ", ",
                          quoted(share.prefix), share.weight);
    }
    line(key, " [" + list + "]");
  }
  std::string take() { return std::move(text_); }

 private:
  void line(const char* key, const std::string& rest) {
    text_ += fmt::format("{:{}}{}:{}\n", "", 2 * depth_, key, rest);
  }
  std::string text_;
  int depth_ = 0;
};

void write_layers(YamlWriter& out, const char* key, const std::vector<int64_t>& layers) {
  if (!layers.empty()) out.plain(key, fmt::format("[{}]", fmt::join(layers, ", ")));
}

// Keys of parts that not every model has are written where they differ from the default, so that
// the text of a model without them, and the hash of its recipe, stay what they were.
void write_parts(YamlWriter& out, const ModelConfig& model) {
  const ModelConfig plain;
  const auto real = [&](const char* key, double value, double usual) {
    if (value != usual) out.value(key, value);
  };
  std::vector<std::string> biases;
  for (const auto& [name, has] :
       {std::pair("qkv", model.biases.qkv), std::pair("output", model.biases.output),
        std::pair("up", model.biases.up), std::pair("down", model.biases.down)}) {
    if (has) biases.emplace_back(name);
  }
  if (!biases.empty()) out.texts("biases", biases);
  if (model.norm_placement != plain.norm_placement) {
    out.name("norm_placement", kNormPlacementNames, model.norm_placement);
  }
  real("norm_offset", model.norm_offset, plain.norm_offset);
  if (model.query_key_norm != plain.query_key_norm) {
    out.name("query_key_norm", kQueryKeyNormNames, model.query_key_norm);
  }
  real("attention_scale", model.attention_scale, plain.attention_scale);
  real("attention_softcap", model.attention_softcap, plain.attention_softcap);
  real("logit_softcap", model.logit_softcap, plain.logit_softcap);
  real("embedding_multiplier", model.embedding_multiplier, plain.embedding_multiplier);
  real("residual_multiplier", model.residual_multiplier, plain.residual_multiplier);
  real("logit_divisor", model.logit_divisor, plain.logit_divisor);
  if (model.window != 0) out.value("window", model.window);
  write_layers(out, "global_layers", model.global_layers);
  real("window_rope_theta", model.window_rope_theta, plain.window_rope_theta);
  if (model.rotated_dims != 0) out.value("rotated_dims", model.rotated_dims);
  write_layers(out, "unrotated_layers", model.unrotated_layers);
}

void write_model_keys(YamlWriter& out, const ModelConfig& model) {
  out.value("name", model.name);
  out.value("layers", model.layers);
  out.value("hidden", model.hidden);
  out.value("heads", model.heads);
  out.value("kv_heads", model.kv_heads);
  out.value("head_dim", model.head_dim);
  out.value("ffn", model.ffn);
  out.value("vocabulary", model.vocabulary);
  out.value("context", model.context);
  out.name("norm", kNormNames, model.norm);
  out.value("norm_epsilon", model.norm_epsilon);
  out.name("activation", kActivationNames, model.activation);
  out.name("positions", kPositionsNames, model.positions);
  out.name("attention", kAttentionNames, model.attention);
  out.value("linear_bias", model.linear_bias);
  out.value("norm_bias", model.norm_bias);
  out.value("tied_embeddings", model.tied_embeddings);
  out.value("rope_theta", model.rope_theta);
  out.open("rope_scaling");
  out.value("factor", model.rope_scaling.factor);
  out.value("low_frequency_factor", model.rope_scaling.low_frequency_factor);
  out.value("high_frequency_factor", model.rope_scaling.high_frequency_factor);
  out.value("original_context", model.rope_scaling.original_context);
  if (model.rope_scaling.kind != RopeScalingKind::llama3) {
    out.name("kind", kRopeScalingNames, model.rope_scaling.kind);
  }
  if (model.rope_scaling.kind == RopeScalingKind::yarn) {
    out.value("fast_turns", model.rope_scaling.fast_turns);
    out.value("slow_turns", model.rope_scaling.slow_turns);
    out.value("amplitude", model.rope_scaling.amplitude);
  }
  out.close();
  out.value("init_std", model.init_std);
  out.value("dropout", model.dropout);
  out.open("latent");
  out.value("query_rank", model.latent.query_rank);
  out.value("key_value_rank", model.latent.key_value_rank);
  out.value("nope_head_dim", model.latent.nope_head_dim);
  out.value("rope_head_dim", model.latent.rope_head_dim);
  out.value("value_head_dim", model.latent.value_head_dim);
  out.close();
  out.open("moe");
  out.value("experts", model.moe.experts);
  out.value("top_k", model.moe.top_k);
  out.value("expert_ffn", model.moe.expert_ffn);
  out.value("shared_experts", model.moe.shared_experts);
  out.value("first_dense_layers", model.moe.first_dense_layers);
  out.value("capacity_factor", model.moe.capacity_factor);
  out.value("balance_loss", model.moe.balance_loss);
  out.value("z_loss", model.moe.z_loss);
  out.value("router_bias", model.moe.router_bias);
  out.value("router_bias_rate", model.moe.router_bias_rate);
  out.close();
  out.value("prediction_layers", model.prediction_layers);
  write_parts(out, model);
}

void write_model(YamlWriter& out, const ModelConfig& model) {
  out.open("model");
  write_model_keys(out, model);
  out.close();
}

void write_distill(YamlWriter& out, const DistillConfig& distill) {
  out.open("distill");
  out.value("teacher", distill.teacher);
  out.value("temperature", distill.temperature);
  out.value("weight", distill.weight);
  if (distill.model) write_model(out, *distill.model);
  out.close();
}

void write_precision(YamlWriter& out, const Recipe& recipe) {
  if (!is_narrow(recipe.precision)) {
    out.name("precision", kPrecisionNames, recipe.precision);
    return;
  }
  out.open("precision");
  out.name("compute", kPrecisionNames, recipe.precision);
  out.value("wide_first", recipe.narrow.wide_first);
  out.value("wide_last", recipe.narrow.wide_last);
  out.value("head", recipe.narrow.head);
  out.value("stochastic_gradients", recipe.narrow.stochastic_gradients);
  out.close();
}

void write_recompute(YamlWriter& out, const Recompute& recompute) {
  out.open("recompute");
  out.name("mode", kRecomputeNames, recompute.mode);
  if (recompute.mode == RecomputeMode::selective) {
    out.plain("parts", recompute.parts == 0
                           ? "default"
                           : fmt::format("[{}]", part_names(recompute.parts, ", ")));
  }
  if (recompute.mode != RecomputeMode::none) {
    out.plain("layers", recompute.layers == 0 ? "all" : fmt::format("{}", recompute.layers));
  }
  out.close();
}

void write_offload(YamlWriter& out, const Offload& offload) {
  out.open("offload");
  out.value("optimizer", offload.optimizer);
  out.plain("activations",
            offload.activations == kEveryLayer ? "all" : fmt::format("{}", offload.activations));
  out.close();
}

void write_training(YamlWriter& out, const Recipe& recipe) {
  out.open("data");
  out.blend("train", recipe.data.train);
  out.blend("validation", recipe.data.validation);
  out.name("packing", kPackingNames, recipe.data.packing);
  out.open("prepare");
  out.value("source", recipe.data.prepare.source);
  out.value("xxh3", recipe.data.prepare.xxh3);
  out.value("tokenizer", recipe.data.prepare.tokenizer);
  out.value("holdout", recipe.data.prepare.holdout);
  out.value("folder", recipe.data.prepare.folder);
  out.close();
  out.close();
  out.open("batch");
  out.value("global", recipe.batch.global);
  out.value("micro", recipe.batch.micro);
  out.value("sequence", recipe.batch.sequence);
  out.close();
  out.open("optimizer");
  out.value("learning_rate", recipe.optimizer.learning_rate);
  out.value("reference_batch", recipe.optimizer.reference_batch);
  out.value("beta1", recipe.optimizer.beta1);
  out.value("beta2", recipe.optimizer.beta2);
  out.value("epsilon", recipe.optimizer.epsilon);
  out.value("weight_decay", recipe.optimizer.weight_decay);
  out.value("clip_norm", recipe.optimizer.clip_norm);
  out.name("master", kMasterNames, recipe.optimizer.master);
  out.value("stochastic_rounding", recipe.optimizer.stochastic_rounding);
  out.close();
  out.open("schedule");
  out.name("kind", kScheduleNames, recipe.schedule.kind);
  out.value("warmup_steps", recipe.schedule.warmup_steps);
  out.name("warmup_form", kWarmupNames, recipe.schedule.warmup_form);
  out.value("decay_steps", recipe.schedule.decay_steps);
  out.value("minimum_ratio", recipe.schedule.minimum_ratio);
  out.value("start_step", recipe.schedule.start_step);
  out.value("reference_batch", recipe.schedule.reference_batch);
  out.close();
  out.open("train");
  out.value("steps", recipe.train.steps);
  out.value("seed", recipe.train.seed);
  out.value("stop_after_nonfinite", recipe.train.stop_after_nonfinite);
  if (recipe.train.target_validation_loss) {
    out.value("target_loss", *recipe.train.target_validation_loss);
  }
  out.close();
  out.open("evaluate");
  out.value("every_steps", recipe.evaluate.every_steps);
  out.value("every_samples", recipe.evaluate.every_samples);
  out.value("skip_first", recipe.evaluate.skip_first);
  out.value("samples", recipe.evaluate.samples);
  out.close();
  out.open("checkpoint");
  out.value("every_steps", recipe.checkpoint.every_steps);
  out.value("every_seconds", recipe.checkpoint.every_seconds);
  out.value("keep_last", recipe.checkpoint.keep_last);
  out.value("keep_best", recipe.checkpoint.keep_best);
  out.value("initialize_from", recipe.checkpoint.initialize_from);
  out.value("key_file", recipe.checkpoint.key_file);
  out.value("sample_tokens", recipe.checkpoint.sample_tokens);
  out.value("sample_prompt", recipe.checkpoint.sample_prompt);
  out.close();
}

void write_place(YamlWriter& out, const Recipe& recipe) {
  const Mesh& mesh = recipe.parallel;
  out.open("parallel");
  out.value("dp", mesh.dp);
  out.value("tp", mesh.tp);
  out.value("pp", mesh.pp);
  out.value("vpp", mesh.vpp);
  out.value("cp", mesh.cp);
  out.value("ep", mesh.ep);
  out.value("expert_room_percent", int64_t{mesh.expert_room_percent});
  out.value("zero", mesh.zero);
  out.name("schedule", kPipelineNames, mesh.pipeline);
  out.close();
  out.open("telemetry");
  out.value("metrics_port", recipe.telemetry.metrics_port);
  out.value("metrics_address", recipe.telemetry.metrics_address);
  out.value("gpu_every_seconds", recipe.telemetry.gpu_every_seconds);
  out.close();
  out.open("mlperf");
  out.value("benchmark", recipe.mlperf.benchmark);
  out.value("division", recipe.mlperf.division);
  out.value("organization", recipe.mlperf.organization);
  out.value("platform", recipe.mlperf.platform);
  out.value("status", recipe.mlperf.status);
  out.value("clear_all", recipe.mlperf.clear_all);
  out.close();
  out.open("run");
  out.value("name", recipe.run.name);
  out.value("owner", recipe.run.owner);
  out.value("project", recipe.run.project);
  out.value("data_class", recipe.run.data_class);
  out.open("budget");
  out.value("hours", recipe.run.budget.hours);
  out.value("usd", recipe.run.budget.usd);
  out.value("kwh", recipe.run.budget.kwh);
  out.value("usd_per_hour", recipe.run.budget.usd_per_hour);
  out.value("average_watts", recipe.run.budget.average_watts);
  out.close();
  out.close();
}

}  // namespace

std::string to_yaml(const ModelConfig& model) {
  YamlWriter out;
  write_model_keys(out, model);
  return out.take();
}

std::string to_yaml(const Recipe& recipe) {
  YamlWriter out;
  write_model(out, recipe.model);
  out.open("lora");
  out.value("rank", recipe.lora.rank);
  out.value("alpha", recipe.lora.alpha);
  out.value("dropout", recipe.lora.dropout);
  out.texts("targets", recipe.lora.targets);
  out.close();
  write_distill(out, recipe.distill);
  write_precision(out, recipe);
  out.value("device", recipe.device);
  out.value("deterministic", recipe.deterministic);
  out.value("threads", recipe.threads);
  write_recompute(out, recipe.recompute);
  write_offload(out, recipe.offload);
  write_training(out, recipe);
  write_place(out, recipe);
  return out.take();
}

}  // namespace tutti::spec
