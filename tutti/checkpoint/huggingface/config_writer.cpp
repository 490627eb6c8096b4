#include <fmt/format.h>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/families.h"

namespace tutti::checkpoint {
namespace {

using spec::ModelConfig;

[[noreturn]] void cannot_export(const std::string& what, const char* accepted) {
  fail(ErrorKind::unsupported, "{}: no model type of transformers that Tutti writes has it; {}",
       what, accepted);
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
    config["attention_bias"] = model.linear_bias;
    config["mlp_bias"] = model.linear_bias;
    config["rope_scaling"] = nullptr;
    const spec::RopeScaling& scaling = model.rope_scaling;
    if (scaling != spec::RopeScaling{}) {
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", scaling.factor},
                                {"low_freq_factor", scaling.low_frequency_factor},
                                {"high_freq_factor", scaling.high_frequency_factor},
                                {"original_max_position_embeddings", scaling.original_context}};
    }
    return;
  }
  config["sliding_window"] = nullptr;
  if (family != HfFamily::mixtral) return;
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

HfFamily hf_family_of(const ModelConfig& model) {
  if (model.attention != spec::Attention::grouped) {
    cannot_export("model.attention: latent", "accepted: grouped");
  }
  if (model.prediction_layers > 0) {
    cannot_export(fmt::format("model.prediction_layers: {}", model.prediction_layers),
                  "accepted: 0");
  }
  const bool gpt = model.norm == spec::Norm::layer && model.activation == spec::Activation::gelu &&
                   model.positions == spec::Positions::learned;
  const bool llama = model.norm == spec::Norm::rms &&
                     model.activation == spec::Activation::swiglu &&
                     model.positions == spec::Positions::rope;
  if (!gpt && !llama) {
    cannot_export("this mix of model.norm, model.activation and model.positions",
                  "accepted: layer, gelu, learned (gpt2) or rms, swiglu, rope (llama)");
  }
  const bool plain_heads = model.head_dim * model.heads == model.hidden;
  const spec::MixtureOfExperts& moe = model.moe;
  if (gpt) {
    if (!plain_heads || model.kv_heads != model.heads) {
      cannot_export(
          fmt::format("model.kv_heads {} and model.head_dim {}", model.kv_heads, model.head_dim),
          "gpt2 has as many as heads, and hidden / heads");
    }
    if (moe.experts > 0) cannot_export("model.moe with model.norm: layer", "mixtral has rms");
    return HfFamily::gpt2;
  }
  if (moe.experts == 0) return HfFamily::llama;
  if (moe.shared_experts > 0 || moe.first_dense_layers > 0 || moe.router_bias ||
      moe.capacity_factor > 0) {
    cannot_export(
        "one of model.moe.shared_experts, first_dense_layers, router_bias and "
        "capacity_factor",
        "mixtral needs 0, 0, false and 0");
  }
  if (!plain_heads || model.linear_bias || model.rope_scaling != spec::RopeScaling{}) {
    cannot_export("model.moe with model.linear_bias, model.rope_scaling or another model.head_dim",
                  "mixtral has none of them");
  }
  return HfFamily::mixtral;
}

Json hf_config(const ModelConfig& model, DType dtype, const Json& original) {
  HfFamily family = hf_family_of(model);
  // The same arithmetic under the name it came with.
  if (family == HfFamily::llama && !model.linear_bias &&
      model.rope_scaling == spec::RopeScaling{} &&
      original.value("model_type", Json()) == "mistral") {
    family = HfFamily::mistral;
  }
  Json config = {{"architectures", {hf_family_names(family).architectures.front()}},
                 {"model_type", hf_family_name(family)}};
  if (family == HfFamily::gpt2) {
    write_gpt2(model, config);
  } else {
    write_llama(model, family, config);
  }
  config["initializer_range"] = model.init_std;
  config["tie_word_embeddings"] = model.tied_embeddings;
  config["torch_dtype"] = torch_name(dtype);
  for (const char* key : hf_neutral_keys()) {
    if (original.contains(key) && !config.contains(key)) config[key] = original.at(key);
  }
  return config;
}

}  // namespace tutti::checkpoint
