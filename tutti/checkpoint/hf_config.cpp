#include "tutti/checkpoint/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/hf_keys.h"

namespace tutti::checkpoint {
namespace {

using spec::ModelConfig;

// Keys that say nothing about the arithmetic of training: names, ids of special tokens, switches of
// the reference implementation, settings of generation. Kept when a model goes back.
constexpr std::array kNeutral = {"_attn_implementation",
                                 "_name_or_path",
                                 "attn_implementation",
                                 "bad_words_ids",
                                 "begin_suppress_tokens",
                                 "bos_token_id",
                                 "cache_implementation",
                                 "chunk_size_feed_forward",
                                 "decoder_start_token_id",
                                 "diversity_penalty",
                                 "do_sample",
                                 "early_stopping",
                                 "encoder_no_repeat_ngram_size",
                                 "eos_token_id",
                                 "exponential_decay_length_penalty",
                                 "finetuning_task",
                                 "forced_bos_token_id",
                                 "forced_eos_token_id",
                                 "gradient_checkpointing",
                                 "id2label",
                                 "is_decoder",
                                 "label2id",
                                 "length_penalty",
                                 "max_length",
                                 "min_length",
                                 "no_repeat_ngram_size",
                                 "num_beam_groups",
                                 "num_beams",
                                 "num_return_sequences",
                                 "output_attentions",
                                 "output_hidden_states",
                                 "output_router_logits",
                                 "output_scores",
                                 "pad_token_id",
                                 "prefix",
                                 "pretraining_tp",
                                 "problem_type",
                                 "remove_invalid_values",
                                 "reorder_and_upcast_attn",
                                 "repetition_penalty",
                                 "return_dict",
                                 "return_dict_in_generate",
                                 "sep_token_id",
                                 "summary_activation",
                                 "summary_first_dropout",
                                 "summary_proj_to_labels",
                                 "summary_type",
                                 "summary_use_proj",
                                 "suppress_tokens",
                                 "task_specific_params",
                                 "temperature",
                                 "tf_legacy_loss",
                                 "tokenizer_class",
                                 "top_k",
                                 "top_p",
                                 "torchscript",
                                 "transformers_version",
                                 "typical_p",
                                 "use_bfloat16",
                                 "use_cache"};

struct Family {
  HfFamily family;
  const char* name;
  std::vector<const char*> architectures;  // the first is what export writes
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {HfFamily::gpt2, "gpt2", {"GPT2LMHeadModel", "GPT2Model"}},
      {HfFamily::llama, "llama", {"LlamaForCausalLM", "LlamaModel"}},
      {HfFamily::mistral, "mistral", {"MistralForCausalLM", "MistralModel"}},
      {HfFamily::mixtral, "mixtral", {"MixtralForCausalLM", "MixtralModel"}}};
  return kFamilies;
}

const Family& family_of(HfFamily family) {
  return *std::find_if(families().begin(), families().end(),
                       [&](const Family& one) { return one.family == family; });
}

const Family& read_family(const Json& config, HfKeys& keys, std::string_view path) {
  if (!keys.has("model_type")) {
    fail(ErrorKind::corrupt, "{}: key 'model_type' is missing; is this a model of transformers?",
         path);
  }
  const std::string type = keys.text("model_type", "");
  const Family* found = nullptr;
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (type == family.name) found = &family;
    names.emplace_back(family.name);
  }
  if (found == nullptr) keys.refuse("model_type", join(names, ", "));
  keys.know("architectures");
  const auto given = config.find("architectures");
  if (given == config.end() || given->is_null()) return *found;
  for (const Json& architecture : *given) {
    const auto& known = found->architectures;
    if (std::find(known.begin(), known.end(), architecture) == known.end()) {
      keys.refuse("architectures", fmt::format("[\"{}\"]", known.front()));
    }
  }
  return *found;
}

// What no model type may have.
void check_common(HfKeys& keys) {
  keys.only("quantization_config", {}, "none: weights in F32, BF16 or F16");
  keys.only("is_encoder_decoder", {false});
  keys.only("add_cross_attention", {false});
  keys.only("tie_encoder_decoder", {false});
  keys.only("pruned_heads", {Json::object()});
  for (const char* key : kNeutral) keys.know(key);
  for (const char* key : {"torch_dtype", "dtype"}) keys.know(key);  // the files say it themselves
}

void read_gpt2(HfKeys& keys, HfModel& out) {
  ModelConfig& model = out.model;
  model.vocabulary = keys.count("vocab_size");
  model.context = keys.count("n_positions");
  keys.know("n_ctx");
  model.hidden = keys.count("n_embd");
  model.layers = keys.count("n_layer");
  model.heads = model.kv_heads = keys.count("n_head");
  model.ffn = keys.count("n_inner", 4 * model.hidden);
  keys.only("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  keys.only("scale_attn_weights", {true});
  keys.only("scale_attn_by_inverse_layer_idx", {false});
  model.norm = spec::Norm::layer;
  model.norm_epsilon = keys.real("layer_norm_epsilon", 1e-5);
  model.activation = spec::Activation::gelu;
  model.positions = spec::Positions::learned;
  model.linear_bias = model.norm_bias = true;
  model.tied_embeddings = keys.flag("tie_word_embeddings", true);
  const double residual = keys.real("resid_pdrop", 0.1);
  const double embedding = keys.real("embd_pdrop", 0.1);
  if (residual == embedding) {
    model.dropout = residual;
  } else {
    out.notes.push_back(
        fmt::format("resid_pdrop {} and embd_pdrop {} differ: model.dropout is 0; it acts in "
                    "training only",
                    residual, embedding));
  }
  if (const double attention = keys.real("attn_pdrop", 0.1); attention != 0) {
    out.notes.push_back(
        fmt::format("attn_pdrop {}: there is no dropout of attention weights here; it acts in "
                    "training only",
                    attention));
  }
}

void read_rope_scaling(const Json& object, std::string_view path, const char* name, HfModel& out) {
  HfKeys keys(object, path, std::string(name) + ".");
  const char* type_key = keys.has("rope_type") ? "rope_type" : "type";
  const std::string type = keys.text(type_key, "default");
  keys.only(type_key, {"default", "llama3"});
  keys.know("type");
  if (keys.has("rope_theta")) out.model.rope_theta = keys.real("rope_theta");
  if (type == "llama3") {
    spec::RopeScaling& scaling = out.model.rope_scaling;
    scaling.factor = keys.real("factor");
    scaling.low_frequency_factor = keys.real("low_freq_factor");
    scaling.high_frequency_factor = keys.real("high_freq_factor");
    scaling.original_context = keys.count("original_max_position_embeddings");
  }
  for (const std::string& key : keys.unknown()) {
    out.notes.push_back(fmt::format("{}.{}: ignored, type {} does not use it", name, key, type));
  }
}

void read_experts(HfKeys& keys, ModelConfig& model) {
  model.moe.experts = keys.count("num_local_experts", 8);
  model.moe.top_k = keys.count("num_experts_per_tok", 2);
  model.moe.expert_ffn = model.ffn;
  model.moe.balance_loss = keys.real("router_aux_loss_coef", 0.001);
  keys.only("router_jitter_noise", {0});
}

// A window changes what a token sees; transformers gives mistral one of 4,096 where the key is
// absent.
void check_window(HfKeys& keys, const Json& config, HfFamily family, std::string_view path) {
  keys.only("sliding_window", {nullptr}, " (every token sees all before it)");
  if (family == HfFamily::mistral && !config.contains("sliding_window")) {
    fail(ErrorKind::unsupported,
         "{}: 'sliding_window' is absent, which means 4096, and Tutti cannot compute it; accepted: "
         "null (every token sees all before it)",
         path);
  }
}

// llama, mistral and mixtral differ in a few defaults and keys.
void read_llama(HfKeys& keys, const Json& config, std::string_view path, HfModel& out) {
  ModelConfig& model = out.model;
  const bool llama = out.family == HfFamily::llama;
  const bool mixtral = out.family == HfFamily::mixtral;
  model.vocabulary = keys.count("vocab_size");
  model.context = keys.count("max_position_embeddings");
  model.hidden = keys.count("hidden_size");
  model.layers = keys.count("num_hidden_layers");
  model.heads = keys.count("num_attention_heads");
  model.kv_heads = keys.count("num_key_value_heads", model.heads);
  model.ffn = keys.count("intermediate_size");
  keys.only("hidden_act", {"silu", "swish"});
  model.norm = spec::Norm::rms;
  model.norm_bias = false;
  model.norm_epsilon = keys.real("rms_norm_eps", mixtral ? 1e-5 : 1e-6);
  model.activation = spec::Activation::swiglu;
  model.positions = spec::Positions::rope;
  model.rope_theta = keys.real("rope_theta", mixtral ? 1e6 : 1e4);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (keys.has(key)) read_rope_scaling(keys.object(key), path, key, out);
  }
  keys.only("partial_rotary_factor", {1});
  model.linear_bias = keys.flag("attention_bias", false);
  if (keys.flag("mlp_bias", false) != model.linear_bias) {
    keys.refuse(model.linear_bias ? "attention_bias" : "mlp_bias",
                "attention_bias and mlp_bias both true, or both false");
  }
  model.tied_embeddings = keys.flag("tie_word_embeddings", false);
  keys.only("attention_dropout", {0},
            " (it acts in training only: write 0 there to go without it)");
  if (!llama) check_window(keys, config, out.family, path);
  if (mixtral) read_experts(keys, model);
}

void check_heads(HfKeys& keys, HfModel& out, std::string_view path) {
  ModelConfig& model = out.model;
  const bool gpt2 = out.family == HfFamily::gpt2;
  const char* hidden_key = gpt2 ? "n_embd" : "hidden_size";
  const char* heads_key = gpt2 ? "n_head" : "num_attention_heads";
  const bool given = !gpt2 && keys.has("head_dim");
  if (!given && model.hidden % model.heads != 0) {
    fail(ErrorKind::corrupt, "{}: {} {} does not divide {} {}", path, heads_key, model.heads,
         hidden_key, model.hidden);
  }
  model.head_dim = given ? keys.count("head_dim") : model.hidden / model.heads;
  if (model.heads % model.kv_heads != 0) {
    fail(ErrorKind::corrupt, "{}: num_key_value_heads {} does not divide num_attention_heads {}",
         path, model.kv_heads, model.heads);
  }
}

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

const char* hf_family_name(HfFamily family) { return family_of(family).name; }

HfModel read_hf_config(const Json& config, std::string_view path) {
  HfKeys keys(config, path);
  HfModel out;
  out.family = read_family(config, keys, path).family;
  check_common(keys);
  if (out.family == HfFamily::gpt2) {
    read_gpt2(keys, out);
  } else {
    read_llama(keys, config, path, out);
  }
  if (keys.has("initializer_range")) out.model.init_std = keys.real("initializer_range");
  check_heads(keys, out, path);
  for (const std::string& key : keys.unknown()) {
    out.notes.push_back(fmt::format("{}: ignored, model type {} does not have it", printable(key),
                                    hf_family_name(out.family)));
  }
  try {
    spec::validate(out.model);
  } catch (const Error& error) {
    fail(ErrorKind::corrupt, "{}: {}", path, error.what());
  }
  return out;
}

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
  Json config = {{"architectures", {family_of(family).architectures.front()}},
                 {"model_type", hf_family_name(family)}};
  if (family == HfFamily::gpt2) {
    write_gpt2(model, config);
  } else {
    write_llama(model, family, config);
  }
  config["initializer_range"] = model.init_std;
  config["tie_word_embeddings"] = model.tied_embeddings;
  config["torch_dtype"] = torch_name(dtype);
  for (const char* key : kNeutral) {
    if (original.contains(key) && !config.contains(key)) config[key] = original.at(key);
  }
  return config;
}

}  // namespace tutti::checkpoint
