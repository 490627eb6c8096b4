#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/deepseek_keys.h"
#include "tutti/checkpoint/huggingface/dense.h"
#include "tutti/checkpoint/huggingface/families.h"
#include "tutti/checkpoint/huggingface/rope_keys.h"

namespace tutti::checkpoint {
namespace {

using spec::ModelConfig;

[[noreturn]] void cannot_export(const std::string& what, const char* accepted) {
  fail(ErrorKind::unsupported, "{}: Tutti writes no model type of transformers with it; {}", what,
       accepted);
}

void write_gpt2(const ModelConfig& model, Json& config) {
  config["vocab_size"] = model.vocabulary;
  config["n_positions"] = model.context;
  config["n_ctx"] = model.context;
  config["n_embd"] = model.hidden;
  config["n_layer"] = model.layers;
  config["n_head"] = model.heads;
  config["n_inner"] = model.ffn;
  config["activation_function"] = "gelu_new";
  config["layer_norm_epsilon"] = model.norm_epsilon;
  config["scale_attn_weights"] = true;
  config["scale_attn_by_inverse_layer_idx"] = false;
  config["resid_pdrop"] = model.dropout;
  config["embd_pdrop"] = model.dropout;
  config["attn_pdrop"] = 0.0;
}

void write_llama(const ModelConfig& model, HfFamily family, Json& config) {
  config["vocab_size"] = model.vocabulary;
  config["max_position_embeddings"] = model.context;
  config["hidden_size"] = model.hidden;
  config["num_hidden_layers"] = model.layers;
  config["num_attention_heads"] = model.heads;
  config["num_key_value_heads"] = model.kv_heads;
  config["head_dim"] = model.head_dim;
  config["intermediate_size"] = model.moe.experts > 0 ? model.moe.expert_ffn : model.ffn;
  config["hidden_act"] = "silu";
  config["rms_norm_eps"] = model.norm_epsilon;
  config["rope_theta"] = model.rope_theta;
  config["attention_dropout"] = 0.0;
  if (family == HfFamily::llama) {
    config["attention_bias"] = spec::has_bias(model, spec::Projection::qkv);
    config["mlp_bias"] = spec::has_bias(model, spec::Projection::up);
    config["rope_scaling"] = nullptr;
    if (model.rope_scaling != spec::RopeScaling{}) {
      config["rope_scaling"] = rope_scaling_object(model.rope_scaling);
    }
    return;
  }
  config["sliding_window"] = nullptr;
  config["num_local_experts"] = model.moe.experts;
  config["num_experts_per_tok"] = model.moe.top_k;
  config["router_aux_loss_coef"] = model.moe.balance_loss;
  config["router_jitter_noise"] = 0.0;
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: TUTTI_CHECK(false, "{} is no type of parameters", dtype_name(dtype));
  }
}

}  // namespace

namespace {

// A config.json of `family`, without the keys that all types share.
Json family_config(const ModelConfig& model, HfFamily family) {
  Json config = {{"architectures", {hf_family_names(family).architectures.front()}},
                 {"model_type", hf_family_name(family)}};
  if (family == HfFamily::gpt2) {
    write_gpt2(model, config);
  } else if (is_dense_family(family)) {
    write_dense(model, family, config);
  } else {
    write_llama(model, family, config);
  }
  config["initializer_range"] = model.init_std;
  config["tie_word_embeddings"] = model.tied_embeddings;
  return config;
}

// Whether a config.json of `family` expresses all of `model`: reads it again.
bool describes(HfFamily family, const ModelConfig& model) {
  ModelConfig wanted = model;
  wanted.name.clear();
  wanted.dropout = 0;  // acts in training only
  wanted.moe.z_loss = 0;
  if (wanted.moe.experts > 0 && wanted.moe.first_dense_layers == 0)
    wanted.ffn = wanted.moe.expert_ffn;
  try {
    ModelConfig read = read_hf_config(family_config(model, family), "").model;
    if (read.moe.first_dense_layers == 0 && read.moe.experts > 0) read.ffn = read.moe.expert_ffn;
    if (is_deepseek(family)) {
      read.head_dim = wanted.head_dim;                  // without a meaning
      read.moe.balance_loss = wanted.moe.balance_loss;  // these act in training only
      read.moe.router_bias_rate = wanted.moe.router_bias_rate;
      if (wanted.latent.norm_epsilon == wanted.norm_epsilon) wanted.latent.norm_epsilon = 0;
    }
    // Gemma's values are functions of integers.
    const auto close = [](double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); };
    const auto scale_of = [](const ModelConfig& one) {
      return one.attention_scale > 0 ? one.attention_scale
                                     : 1 / std::sqrt(static_cast<double>(spec::key_dim(one)));
    };
    if (close(scale_of(read), scale_of(wanted))) read.attention_scale = wanted.attention_scale;
    return read == wanted;
  } catch (const Error&) {
    return false;
  }
}

// Among the current Llama-like model types: the original one, or the first that can express the
// model.
std::optional<HfFamily> dense_family_of(const ModelConfig& model, const Json& original) {
  const Json type = original.value("model_type", Json());
  std::optional<HfFamily> found;
  for (const HfFamilyNames& one : hf_families()) {
    if (one.family == HfFamily::gpt2 || one.family == HfFamily::mixtral) continue;
    const bool came_from = type == one.name;
    if ((found && !came_from) || !describes(one.family, model)) continue;
    found = one.family;
    if (came_from) return found;
  }
  return found;
}

// The first part of a model that Llama lacks, for the error.
std::string first_part(const ModelConfig& model) {
  const ModelConfig plain;
  if (model.norm_placement != plain.norm_placement) return "model.norm_placement";
  if (model.query_key_norm != plain.query_key_norm) return "model.query_key_norm";
  if (model.norm_offset != 0) return "model.norm_offset";
  if (model.biases != plain.biases) return "model.biases";
  if (model.window > 0) return "model.window";
  if (!model.unrotated_layers.empty()) return "model.unrotated_layers";
  if (model.rotated_dims > 0) return "model.rotated_dims";
  if (model.attention_softcap > 0) return "model.attention_softcap";
  if (model.logit_softcap > 0) return "model.logit_softcap";
  if (model.attention_scale > 0) return "model.attention_scale";
  if (model.attention == spec::Attention::latent) return "model.attention: latent";
  if (model.attention_sinks) return "model.attention_sinks";
  if (model.moe.biases) return "model.moe.biases";
  if (model.activation == spec::Activation::clamped_swiglu)
    return "model.activation: clamped-swiglu";
  if (model.embedding_multiplier != 1) return "model.embedding_multiplier";
  if (model.residual_multiplier != 1) return "model.residual_multiplier";
  if (model.logit_divisor != 1) return "model.logit_divisor";
  return "";
}

}  // namespace

HfFamily hf_family_of(const ModelConfig& model, const Json& original) {
  if (model.prediction_layers > 0) {
    cannot_export(fmt::format("model.prediction_layers: {}", model.prediction_layers),
                  "accepted: 0");
  }
  const bool gpt = model.norm == spec::Norm::layer && model.activation == spec::Activation::gelu &&
                   model.positions == spec::Positions::learned;
  const bool llama = model.norm == spec::Norm::rms && spec::is_gated(model) &&
                     model.positions == spec::Positions::rope;
  if (!gpt && !llama) {
    cannot_export("this mix of model.norm, model.activation and model.positions",
                  "accepted: layer, gelu, learned (gpt2) or rms, swiglu, rope (llama)");
  }
  const bool plain_heads = model.head_dim * model.heads == model.hidden;
  const spec::MixtureOfExperts& moe = model.moe;
  const std::string part = first_part(model);
  if (llama) {
    if (const std::optional<HfFamily> family = dense_family_of(model, original)) return *family;
    if (moe.experts == 0 && part.empty() && model.activation == spec::Activation::swiglu)
      return HfFamily::llama;
  }
  const double inner_epsilon =
      model.latent.norm_epsilon > 0 ? model.latent.norm_epsilon : model.norm_epsilon;
  if (model.attention == spec::Attention::latent && inner_epsilon != kLatentEpsilon) {
    cannot_export(fmt::format("model.latent.norm_epsilon: {}", inner_epsilon),
                  "transformers computes with 1e-6");
  }
  if (!part.empty() || model.activation == spec::Activation::geglu) {
    cannot_export(fmt::format("{} with the other parts of this model",
                              part.empty() ? "model.activation: geglu" : part),
                  "accepted: the parts of one of them together, such as those of qwen3 or gemma2");
  }
  if (gpt) {
    if (!plain_heads || model.kv_heads != model.heads) {
      cannot_export(
          fmt::format("model.kv_heads {} and model.head_dim {}", model.kv_heads, model.head_dim),
          "gpt2 has as many as heads, and hidden / heads");
    }
    if (moe.experts > 0) cannot_export("model.moe with model.norm: layer", "mixtral has rms");
    return HfFamily::gpt2;
  }
  if (moe.scores != spec::RouterScores::softmax || moe.groups > 1 || moe.weight_factor != 1) {
    cannot_export("model.moe.scores, groups or weight_factor with the other parts of this model",
                  "accepted: those of deepseek_v2 or deepseek_v3 together");
  }
  if (moe.shared_experts > 0 || moe.first_dense_layers > 0 || moe.router_bias ||
      moe.capacity_factor > 0 || !moe.renormalize) {
    cannot_export(
        "one of model.moe.shared_experts, first_dense_layers, router_bias, capacity_factor and "
        "renormalize",
        "mixtral needs 0, 0, false, 0 and true");
  }
  if (!plain_heads || model.linear_bias || model.rope_scaling != spec::RopeScaling{}) {
    cannot_export("model.moe with model.linear_bias, model.rope_scaling or another model.head_dim",
                  "mixtral has none of them");
  }
  return HfFamily::mixtral;
}

Json hf_config(const ModelConfig& model, DType dtype, const Json& original) {
  Json config = family_config(model, hf_family_of(model, original));
  keep_rotated_share(model, original, config);
  config["torch_dtype"] = torch_name(dtype);
  for (const char* key : hf_neutral_keys()) {
    if (original.contains(key) && !config.contains(key)) config[key] = original.at(key);
  }
  return config;
}

}  // namespace tutti::checkpoint
