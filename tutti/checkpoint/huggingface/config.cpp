#include "tutti/checkpoint/huggingface/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/deepseek_keys.h"
#include "tutti/checkpoint/huggingface/dense.h"
#include "tutti/checkpoint/huggingface/families.h"
#include "tutti/checkpoint/huggingface/keys.h"
#include "tutti/checkpoint/huggingface/packing_config.h"
#include "tutti/checkpoint/huggingface/rope_keys.h"

namespace tutti::checkpoint {
namespace {

using spec::ModelConfig;

const HfFamilyNames& read_family(const Json& config, HfKeys& keys, std::string_view path) {
  if (!keys.has("model_type")) {
    fail(ErrorKind::usage, "{}: key 'model_type' is missing; is this a model of transformers?",
         path);
  }
  const std::string type = keys.text("model_type", "");
  const HfFamilyNames* found = nullptr;
  std::vector<std::string> names;
  for (const HfFamilyNames& family : hf_families()) {
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

// Quantized weights: packed ones of every type but those with stacked experts (pack_quantized.h),
// experts of gpt-oss (mxfp4.h) and matrices of DeepSeek (fp8.h).
void read_quantization(HfKeys& keys, const Json& config, std::string_view path, HfModel& out) {
  const bool stacked = hf_family_names(out.family).experts.stacked;
  if (has_packing(config) && !stacked) {
    out.packing = read_packing(keys.object("quantization_config"), out.family, path);
    return;
  }
  if (out.family != HfFamily::gpt_oss && !is_deepseek(out.family)) {
    keys.only("quantization_config", {},
              fmt::format("none: weights in F32, BF16 or F16; or quant_method {} with format "
                          "pack-quantized",
                          packing_method(out.family)));
    return;
  }
  if (!keys.has("quantization_config")) return;
  HfKeys quantization(keys.object("quantization_config"), path, "quantization_config.");
  if (is_deepseek(out.family)) {
    quantization.only("quant_method", {"fp8"});
    quantization.only("fmt", {"e4m3"});
    quantization.only("weight_block_size", {Json::array({128, 128})});
    out.notes.emplace_back(
        "quantization_config: weights are read from FP8; in bf16 they are rounded");
    return;
  }
  quantization.only("quant_method", {"mxfp4"});
  out.notes.emplace_back(
      "quantization_config: MXFP4 weights of experts are imported as bf16, without loss");
}

// Keys that no model type may have.
void check_common(HfKeys& keys) {
  keys.only("is_encoder_decoder", {false});
  keys.only("add_cross_attention", {false});
  keys.only("tie_encoder_decoder", {false});
  keys.only("pruned_heads", {Json::object()});
  for (const char* key : hf_neutral_keys()) keys.know(key);
  for (const char* key : {"torch_dtype", "dtype"}) keys.know(key);  // the files contain it
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
        fmt::format("attn_pdrop {}: Tutti has no dropout of attention weights; it acts in "
                    "training only",
                    attention));
  }
}

void read_mixtral_experts(HfKeys& keys, ModelConfig& model) {
  model.moe.experts = keys.count("num_local_experts", 8);
  model.moe.top_k = keys.count("num_experts_per_tok", 2);
  model.moe.expert_ffn = model.ffn;
  model.moe.balance_loss = keys.real("router_aux_loss_coef", 0.001);
  keys.only("router_jitter_noise", {0});
}

// llama and mixtral, which differ in a few defaults and keys.
void read_llama(HfKeys& keys, const Json& config, std::string_view path, HfModel& out) {
  ModelConfig& model = out.model;
  const bool llama = out.family == HfFamily::llama;
  const bool mixtral = out.family == HfFamily::mixtral;
  model.vocabulary = keys.count("vocab_size");
  model.context = keys.count("max_position_embeddings");
  model.hidden = keys.count("hidden_size");
  model.layers = keys.count("num_hidden_layers");
  model.heads = keys.count("num_attention_heads");
  // null means one per head in both; an absent key does so in llama only.
  const bool as_heads = llama || config.contains("num_key_value_heads");
  model.kv_heads = keys.count("num_key_value_heads", as_heads ? model.heads : 8);
  model.ffn = keys.count("intermediate_size");
  keys.only("hidden_act", {"silu", "swish"});
  model.norm = spec::Norm::rms;
  model.norm_bias = false;
  model.norm_epsilon = keys.real("rms_norm_eps", mixtral ? 1e-5 : 1e-6);
  model.activation = spec::Activation::swiglu;
  model.positions = spec::Positions::rope;
  model.rope_theta = keys.real("rope_theta", mixtral ? 1e6 : 1e4);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(key)) continue;
    read_rope(keys.object(key), path, key, model.rope_theta, nullptr, out);
  }
  keys.only("partial_rotary_factor", {1});
  const bool attention_bias = keys.flag("attention_bias", false);
  const bool mlp_bias = keys.flag("mlp_bias", false);
  model.linear_bias = attention_bias && mlp_bias;
  if (!model.linear_bias) {
    model.biases = {attention_bias, attention_bias, mlp_bias, mlp_bias};
  }
  model.tied_embeddings = keys.flag("tie_word_embeddings", false);
  keys.only("attention_dropout", {0}, " (it acts in training only: write 0 to disable it)");
  if (!mixtral) return;
  keys.only("sliding_window", {nullptr}, " (every token attends to all before it)");
  read_mixtral_experts(keys, model);
}

void check_heads(HfKeys& keys, HfModel& out, std::string_view path) {
  ModelConfig& model = out.model;
  const bool gpt2 = out.family == HfFamily::gpt2;
  const char* hidden_key = gpt2 ? "n_embd" : "hidden_size";
  const char* heads_key = gpt2 ? "n_head" : "num_attention_heads";
  if (model.attention == spec::Attention::latent) {
    if (model.kv_heads != model.heads) {
      keys.refuse("num_key_value_heads", fmt::format("{}, as num_attention_heads", model.heads));
    }
    return;
  }
  const bool given = !gpt2 && keys.has("head_dim");
  const int64_t usual = usual_head_dim(out.family);
  if (!given && usual == 0 && model.hidden % model.heads != 0) {
    fail(ErrorKind::usage, "{}: {} {} does not divide {} {}", path, heads_key, model.heads,
         hidden_key, model.hidden);
  }
  model.head_dim = given ? keys.count("head_dim") : usual > 0 ? usual : model.hidden / model.heads;
  if (model.heads % model.kv_heads != 0) {
    fail(ErrorKind::usage, "{}: num_key_value_heads {} does not divide num_attention_heads {}",
         path, model.kv_heads, model.heads);
  }
}

}  // namespace

const char* hf_family_name(HfFamily family) { return hf_family_names(family).name; }

HfModel read_hf_config(const Json& config, std::string_view path) {
  HfKeys keys(config, path);
  HfModel out;
  out.family = read_family(config, keys, path).family;
  check_common(keys);
  read_quantization(keys, config, path, out);
  if (out.family == HfFamily::gpt2) {
    read_gpt2(keys, out);
  } else if (is_dense_family(out.family)) {
    read_dense(keys, config, path, out);
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
    fail(ErrorKind::usage, "{}: {}", path, error.what());
  }
  return out;
}

}  // namespace tutti::checkpoint
