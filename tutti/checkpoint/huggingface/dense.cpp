#include "tutti/checkpoint/huggingface/dense.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/checkpoint/huggingface/deepseek_keys.h"
#include "tutti/checkpoint/huggingface/dense_types.h"
#include "tutti/checkpoint/huggingface/expert_keys.h"
#include "tutti/checkpoint/huggingface/rope_keys.h"

namespace tutti::checkpoint {
namespace {

using spec::ModelConfig;

// The layers of "layer_types" without a window; none if the key is absent.
std::optional<std::vector<int64_t>> listed_global_layers(HfKeys& keys, const Json& config,
                                                         int64_t layers, std::string_view path) {
  if (!keys.has("layer_types")) return std::nullopt;
  const Json& list = config.at("layer_types");
  if (!list.is_array() || static_cast<int64_t>(list.size()) != layers) {
    fail(ErrorKind::usage, "{}: 'layer_types' is not a list of {} kinds of layers", path, layers);
  }
  std::vector<int64_t> global;
  for (int64_t i = 0; i < layers; ++i) {
    const Json& kind = list.at(static_cast<size_t>(i));
    if (kind == kFullAttention) {
      global.push_back(i);
    } else if (kind != kSlidingAttention) {
      keys.refuse("layer_types",
                  fmt::format("lists of \"{}\" and \"{}\"", kFullAttention, kSlidingAttention));
    }
  }
  return global;
}

int64_t window_key(HfKeys& keys, const Json& config, int64_t usual) {
  if (!config.contains("sliding_window")) return usual;
  return keys.has("sliding_window") ? keys.count("sliding_window") : 0;
}

void read_windows(const DenseType& type, HfKeys& keys, const Json& config, std::string_view path,
                  ModelConfig& model) {
  if (type.windows == Windows::none) return;
  const int64_t window = window_key(keys, config, type.window);
  keys.know("sliding_window");
  if (type.windows == Windows::all) {
    model.window = window;
    return;
  }
  if (type.windows == Windows::used) {
    if (keys.flag("use_sliding_window", false)) model.window = window;
    return;
  }
  const auto listed = listed_global_layers(keys, config, model.layers, path);
  if (type.windows == Windows::above) {
    const bool used = keys.flag("use_sliding_window", false);
    const int64_t first = keys.has("max_window_layers") && config.at("max_window_layers") == 0
                              ? 0
                              : keys.count("max_window_layers", 28);
    if (!used || window == 0) return;
    if (type.unrotated && !listed) {
      keys.refuse("use_sliding_window", "false, or true beside layer_types");
    }
    model.window = window;
    for (int64_t i = 0; !listed && i < std::min(first, model.layers); ++i) {
      model.global_layers.push_back(i);
    }
  } else {
    model.window = window;
    int64_t pattern = type.pattern;
    for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
      pattern = keys.count(key, pattern);
    }
    for (int64_t i = pattern - 1; !listed && i < model.layers; i += pattern) {
      model.global_layers.push_back(i);
    }
  }
  if (listed) model.global_layers = *listed;
  if (static_cast<int64_t>(model.global_layers.size()) == model.layers && !type.window_rope) {
    model.window = 0;
    model.global_layers.clear();
  }
}

void read_biases(const DenseType& type, HfKeys& keys, ModelConfig& model) {
  model.linear_bias = false;
  const bool attention =
      type.attention_bias == AttentionBias::all || type.attention_bias == AttentionBias::qkv
          ? keys.flag("attention_bias", type.usual_attention_bias)
          : type.attention_bias == AttentionBias::always_qkv;
  const bool mlp = type.mlp_bias && keys.flag("mlp_bias", false);
  model.biases = {attention, attention && type.attention_bias == AttentionBias::all, mlp, mlp};
  if (model.biases == spec::ProjectionBiases{true, true, true, true}) {
    model.linear_bias = true;
    model.biases = {};
  }
}

void read_gemma(const DenseType& type, HfKeys& keys, const Json& config, ModelConfig& model) {
  model.norm_offset = 1;
  model.embedding_multiplier = std::sqrt(static_cast<double>(model.hidden));
  const double scalar = keys.real("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) keys.refuse("query_pre_attn_scalar", "above 0");
  model.attention_scale = 1 / std::sqrt(scalar);
  const auto softcap = [&](const char* key, double usual) {
    if (!config.contains(key)) return usual;
    return keys.has(key) ? keys.real(key) : 0;
  };
  model.attention_softcap = softcap("attn_logit_softcapping", type.attention_softcap);
  model.logit_softcap = softcap("final_logit_softcapping", type.logit_softcap);
  keys.only("use_bidirectional_attention", {false});
}

void read_unrotated(HfKeys& keys, const Json& config, std::string_view path, ModelConfig& model) {
  const int64_t interval = keys.count("no_rope_layer_interval", 4);
  const bool given = keys.has("no_rope_layers");
  if (given && (!config.at("no_rope_layers").is_array() ||
                static_cast<int64_t>(config.at("no_rope_layers").size()) != model.layers)) {
    fail(ErrorKind::usage, "{}: 'no_rope_layers' is not a list of {} numbers", path, model.layers);
  }
  for (int64_t i = 0; i < model.layers; ++i) {
    bool rotated = (i + 1) % interval != 0;
    if (given) {
      const Json& entry = config.at("no_rope_layers").at(static_cast<size_t>(i));
      if (entry != 0 && entry != 1) keys.refuse("no_rope_layers", "a list of 0 and 1");
      rotated = entry == 1;
    }
    if (!rotated) model.unrotated_layers.push_back(i);
  }
}

// If layers with a window have their own RoPE: the objects of these layers, and of those without.
void read_ropes_of_kinds(const Json& object, std::string_view path, const std::string& name,
                         HfModel& out) {
  if (object.contains(kFullAttention)) {
    read_rope(object.at(kFullAttention), path, fmt::format("{}.{}", name, kFullAttention),
              out.model.rope_theta, nullptr, out);
  }
  if (!object.contains(kSlidingAttention)) return;
  HfModel window;
  read_rope(object.at(kSlidingAttention), path, fmt::format("{}.{}", name, kSlidingAttention),
            out.model.window_rope_theta, nullptr, window);
  if (window.model.rope_scaling != spec::RopeScaling{}) {
    fail(ErrorKind::unsupported,
         "{}: '{}.{}' scales the RoPE of layers with a window, which Tutti cannot compute; "
         "accepted: rope_type default",
         path, name, kSlidingAttention);
  }
}

void read_rotation(const DenseType& type, HfKeys& keys, std::string_view path, HfModel& out) {
  ModelConfig& model = out.model;
  model.rope_theta = keys.real("rope_theta", type.rope_theta);
  if (type.window_rope) model.window_rope_theta = keys.real("rope_local_base_freq", 1e4);
  const bool shares = type.rotated_share > 0;
  double share = 1;
  if (shares) {
    share = keys.real("partial_rotary_factor", type.rotated_share);
  } else {
    keys.only("partial_rotary_factor", {1});
  }
  if (!keys.has("rope_scaling") && !keys.has("rope_parameters")) {
    model.rope_scaling = type.rope_scaling;
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(key)) continue;
    const Json& object = keys.object(key);
    if (type.window_rope &&
        (object.contains(kFullAttention) || object.contains(kSlidingAttention))) {
      read_ropes_of_kinds(object, path, key, out);
    } else {
      read_rope(object, path, key, model.rope_theta, shares ? &share : nullptr, out);
    }
  }
  if (!shares) return;
  const int64_t head_dim = keys.has("head_dim") ? keys.count("head_dim")
                           : type.head_dim > 0  ? type.head_dim
                                                : model.hidden / model.heads;
  const int64_t rotated = dims_of_share(static_cast<double>(head_dim), share);
  if (rotated == 0) {
    fail(ErrorKind::usage,
         "{}: 'partial_rotary_factor' is {}, of which no column of {} rotates; accepted: above 0, "
         "up "
         "to 1",
         path, share, head_dim);
  }
  model.rotated_dims = rotated == head_dim ? 0 : rotated;
}

}  // namespace

bool is_dense_family(HfFamily family) { return find_dense_type(family) != nullptr; }

int64_t usual_head_dim(HfFamily family) {
  const DenseType* type = find_dense_type(family);
  return type == nullptr ? 0 : type->head_dim;
}

void read_dense(HfKeys& keys, const Json& config, std::string_view path, HfModel& out) {
  const DenseType& type = *find_dense_type(out.family);
  ModelConfig& model = out.model;
  model.vocabulary = keys.count("vocab_size");
  model.context = keys.count("max_position_embeddings");
  model.hidden = keys.count("hidden_size");
  model.layers = keys.count("num_hidden_layers");
  if (model.layers > spec::kMostLayers) {  // bounds the lists of layers below
    fail(ErrorKind::usage, "{}: 'num_hidden_layers' is {}; accepted: up to {}", path, model.layers,
         spec::kMostLayers);
  }
  model.heads = keys.count("num_attention_heads");
  // null means one per head in all types.
  const bool as_heads = type.kv_heads == 0 || config.contains("num_key_value_heads");
  model.kv_heads = keys.count("num_key_value_heads", as_heads ? model.heads : type.kv_heads);
  model.ffn = keys.count("intermediate_size");
  model.norm = spec::Norm::rms;
  model.norm_bias = false;
  model.norm_epsilon = keys.real("rms_norm_eps", type.epsilon);
  model.norm_placement = type.norms;
  model.query_key_norm = type.query_key_norm;
  model.attention_sinks = type.sinks;
  model.activation = type.activation;
  if (type.activation == spec::Activation::geglu) {
    keys.only("hidden_activation", {"gelu_pytorch_tanh"});
    keys.know("hidden_act");  // transformers reads hidden_activation
  } else {
    keys.only("hidden_act", {"silu", "swish"});
  }
  model.positions = spec::Positions::rope;
  model.tied_embeddings = keys.flag("tie_word_embeddings", type.tied);
  for (const char* key : {"attention_dropout", "resid_pdrop", "embd_pdrop"}) {
    if (const double dropout = keys.real(key, 0); dropout != 0) {
      out.notes.push_back(fmt::format("{} {}: ignored; it acts in training only", key, dropout));
    }
  }
  keys.know("original_max_position_embeddings");  // only for longrope, which is refused
  read_biases(type, keys, model);
  if (type.latent) read_latent(keys, config, model);
  if (is_deepseek(out.family)) {
    read_deepseek_experts(keys, config, out.family, out);
  } else if (type.routed) {
    read_experts(keys, config, out.family, model);
  }
  read_windows(type, keys, config, path, model);
  read_rotation(type, keys, path, out);
  if (type.gemma) read_gemma(type, keys, config, model);
  if (type.unrotated) read_unrotated(keys, config, path, model);
  if (!type.multipliers) return;
  model.embedding_multiplier = keys.real("embedding_multiplier", 1);
  model.residual_multiplier = keys.real("residual_multiplier", 1);
  model.logit_divisor = keys.real("logits_scaling", 1);
  model.attention_scale = keys.real("attention_multiplier", 1);
  if (!(model.attention_scale > 0)) keys.refuse("attention_multiplier", "above 0");
}

}  // namespace tutti::checkpoint
