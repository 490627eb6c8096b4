// Writes config.json of the dense model types (dense.h).
#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/checkpoint/huggingface/deepseek_keys.h"
#include "tutti/checkpoint/huggingface/dense.h"
#include "tutti/checkpoint/huggingface/dense_types.h"
#include "tutti/checkpoint/huggingface/expert_keys.h"
#include "tutti/checkpoint/huggingface/rope_keys.h"

namespace tutti::checkpoint {
namespace {

using spec::ModelConfig;

void write_windows(const DenseType& type, const ModelConfig& model, Json& config) {
  if (type.windows == Windows::none) return;
  config["sliding_window"] = model.window > 0 ? Json(model.window) : Json(nullptr);
  if (type.windows == Windows::all) return;
  if (type.windows == Windows::used) {
    config["use_sliding_window"] = model.window > 0;
    return;
  }
  if (type.windows == Windows::above) config["use_sliding_window"] = model.window > 0;
  if (model.window == 0 && type.windows == Windows::above) return;
  Json kinds = Json::array();
  for (int64_t i = 0; i < model.layers; ++i) {
    const bool global = model.window == 0 || std::binary_search(model.global_layers.begin(),
                                                                model.global_layers.end(), i);
    kinds.push_back(global ? kFullAttention : kSlidingAttention);
  }
  config["layer_types"] = std::move(kinds);
  if (type.windows != Windows::above) return;
  // Read instead by transformers before 4.53.
  int64_t first = 0;
  while (first < static_cast<int64_t>(model.global_layers.size()) &&
         model.global_layers[static_cast<size_t>(first)] == first) {
    ++first;
  }
  config["max_window_layers"] = first;
}

}  // namespace

void write_dense(const ModelConfig& model, HfFamily family, Json& config) {
  const DenseType& type = *find_dense_type(family);
  config["vocab_size"] = model.vocabulary;
  config["max_position_embeddings"] = model.context;
  config["hidden_size"] = model.hidden;
  config["num_hidden_layers"] = model.layers;
  config["num_attention_heads"] = model.heads;
  config["num_key_value_heads"] = model.kv_heads;
  config["head_dim"] = model.head_dim;
  config["intermediate_size"] = model.ffn;
  config["rms_norm_eps"] = model.norm_epsilon;
  config["rope_theta"] = model.rope_theta;
  config["attention_dropout"] = 0.0;
  if (type.activation == spec::Activation::geglu) {
    config["hidden_activation"] = "gelu_pytorch_tanh";
  } else {
    config["hidden_act"] = "silu";
  }
  if (type.attention_bias == AttentionBias::all || type.attention_bias == AttentionBias::qkv) {
    config["attention_bias"] = spec::has_bias(model, spec::Projection::qkv);
  }
  if (type.mlp_bias) config["mlp_bias"] = spec::has_bias(model, spec::Projection::up);
  const bool scaled = model.rope_scaling != spec::RopeScaling{};
  if (!scaled && type.rope_scaling != spec::RopeScaling{}) {
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", model.rope_theta}};
  } else if (scaled || type.family != HfFamily::mistral) {
    config["rope_scaling"] = scaled ? rope_scaling_object(model.rope_scaling) : Json(nullptr);
    if (scaled && type.latent) write_mscale(model, config["rope_scaling"]);
  }
  if (type.rotated_share > 0) config["partial_rotary_factor"] = rotated_share(model);
  if (type.window_rope) config["rope_local_base_freq"] = model.window_rope_theta;
  write_windows(type, model, config);
  if (type.latent) write_latent(model, config);
  if (is_deepseek(family)) {
    write_deepseek_experts(model, family, config);
  } else if (type.routed) {
    write_experts(model, family, config);
  }
  if (type.gemma) {
    const double scalar = 1 / (model.attention_scale * model.attention_scale);
    config["query_pre_attn_scalar"] = std::abs(scalar - std::round(scalar)) < 1e-9 * scalar
                                          ? Json(std::llround(scalar))
                                          : Json(scalar);
    const auto cap = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
    config["attn_logit_softcapping"] = cap(model.attention_softcap);
    config["final_logit_softcapping"] = cap(model.logit_softcap);
  }
  if (type.unrotated) {
    Json rotated = Json::array();
    for (int64_t i = 0; i < model.layers; ++i) {
      rotated.push_back(spec::is_rotated(model, i) ? 1 : 0);
    }
    config["no_rope_layers"] = std::move(rotated);
  }
  if (!type.multipliers) return;
  config["embedding_multiplier"] = model.embedding_multiplier;
  config["residual_multiplier"] = model.residual_multiplier;
  config["logits_scaling"] = model.logit_divisor;
  config["attention_multiplier"] = model.attention_scale;
}

}  // namespace tutti::checkpoint
