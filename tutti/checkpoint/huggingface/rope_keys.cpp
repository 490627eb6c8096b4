#include "tutti/checkpoint/huggingface/rope_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "tutti/checkpoint/huggingface/deepseek_keys.h"
#include "tutti/checkpoint/huggingface/dense_types.h"
#include "tutti/checkpoint/huggingface/keys.h"

namespace tutti::checkpoint {
namespace {

// "partial_rotary_factor", which newer files have inside the RoPE object.
std::optional<double> given_share(const Json& config) {
  const Json* found = &config;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto object = config.find(key);
    if (object != config.end() && object->is_object() &&
        object->contains("partial_rotary_factor")) {
      found = &*object;
    }
  }
  const auto share = found->find("partial_rotary_factor");
  if (share == found->end() || !share->is_number()) return std::nullopt;
  return share->get<double>();
}

}  // namespace

using spec::ModelConfig;

void read_rope(const Json& object, std::string_view path, const std::string& name, double& theta,
               double* share, HfModel& out) {
  HfKeys keys(object, path, name + ".");
  const char* type_key = keys.has("rope_type") ? "rope_type" : "type";
  const std::string type = keys.text(type_key, "default");
  keys.only(type_key, {"default", "llama3", "linear", "yarn"});
  keys.know("type");
  if (keys.has("rope_theta")) theta = keys.real("rope_theta");
  if (share != nullptr) {
    *share = keys.real("partial_rotary_factor", *share);
  } else {
    keys.only("partial_rotary_factor", {1});
  }
  for (const char* kind : {kFullAttention, kSlidingAttention}) {
    keys.only(kind, {}, "none: all layers of this model type have the same RoPE");
  }
  spec::RopeScaling& scaling = out.model.rope_scaling;
  if (type != "default") scaling.factor = keys.real("factor");
  if (type == "llama3") {
    scaling.low_frequency_factor = keys.real("low_freq_factor");
    scaling.high_frequency_factor = keys.real("high_freq_factor");
    scaling.original_context = keys.count("original_max_position_embeddings");
  } else if (type == "linear") {
    scaling.kind = spec::RopeScalingKind::linear;
  } else if (type == "yarn") {
    scaling.kind = spec::RopeScalingKind::yarn;
    scaling.original_context = keys.count("original_max_position_embeddings", out.model.context);
    scaling.fast_turns = keys.real("beta_fast", 32);
    scaling.slow_turns = keys.real("beta_slow", 1);
    scaling.amplitude = keys.real("attention_factor", 0);
    if (out.model.attention == spec::Attention::latent) {
      read_mscale(keys, out.model);
    } else {
      keys.only("mscale", {}, "none (attention_factor says it)");
      keys.only("mscale_all_dim", {}, "none (attention_factor says it)");
    }
    scaling.rounded = keys.flag("truncate", true);
  }
  if (type != "yarn" && type != "default" && out.model.attention == spec::Attention::latent) {
    keys.only("mscale_all_dim", {0}, "none beside this type");
  }
  for (const std::string& key : keys.unknown()) {
    out.notes.push_back(fmt::format("{}.{}: ignored, type {} does not use it", name, key, type));
  }
}

Json rope_scaling_object(const spec::RopeScaling& scaling) {
  switch (scaling.kind) {
    case spec::RopeScalingKind::llama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_frequency_factor},
              {"high_freq_factor", scaling.high_frequency_factor},
              {"original_max_position_embeddings", scaling.original_context}};
    case spec::RopeScalingKind::linear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case spec::RopeScalingKind::yarn: break;
  }
  Json out = {{"rope_type", "yarn"},
              {"factor", scaling.factor},
              {"beta_fast", scaling.fast_turns},
              {"beta_slow", scaling.slow_turns},
              {"original_max_position_embeddings", scaling.original_context}};
  if (scaling.amplitude > 0) out["attention_factor"] = scaling.amplitude;
  if (!scaling.rounded) out["truncate"] = false;
  return out;
}

int64_t dims_of_share(double head_dim, double share) {
  return share > 0 && share <= 1 ? static_cast<int64_t>(head_dim * share) : 0;
}

double rotated_share(const ModelConfig& model) {
  const auto head_dim = static_cast<double>(model.head_dim);
  const auto rotated = static_cast<double>(spec::rotated_dims(model));
  double share = rotated / head_dim;
  while (dims_of_share(head_dim, share) < spec::rotated_dims(model)) {
    share = std::nextafter(share, 2.0);
  }
  return share;
}

void keep_rotated_share(const ModelConfig& model, const Json& original, Json& config) {
  if (!config.contains("partial_rotary_factor")) return;
  const std::optional<double> share = given_share(original);
  const auto head_dim = static_cast<double>(model.head_dim);
  if (share && dims_of_share(head_dim, *share) == spec::rotated_dims(model)) {
    config["partial_rotary_factor"] = *share;
  }
}

}  // namespace tutti::checkpoint
