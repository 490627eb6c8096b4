#include "tutti/checkpoint/huggingface/dense.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::checkpoint {
namespace {

using spec::ModelConfig;

// Which biases "attention_bias": true stands for.
enum class AttentionBias { none, always_qkv, qkv, all };

// How a type chooses the layers that have the window.
enum class Windows {
  none,
  all,     // sliding_window, absent: `usual`
  above,   // use_sliding_window, then layer_types, else layers from max_window_layers on
  listed,  // layer_types, else every pattern-th layer sees everything
};

struct DenseType {
  HfFamily family;
  spec::Activation activation = spec::Activation::swiglu;
  double epsilon = 1e-6;
  double rope_theta = 1e4;
  bool tied = false;
  int64_t kv_heads = 0;  // where the key is absent; 0: heads
  int64_t head_dim = 0;  // likewise; 0: hidden / heads
  AttentionBias attention_bias = AttentionBias::all;
  bool usual_attention_bias = false;
  bool mlp_bias = false;  // has the key
  Windows windows = Windows::none;
  int64_t window = 0;   // where the key is absent; 0: none
  int64_t pattern = 0;  // listed: every so many layers one sees everything
  spec::NormPlacement norms = spec::NormPlacement::before;
  spec::QueryKeyNorm query_key_norm = spec::QueryKeyNorm::none;
  double rotated_share = 0;      // partial_rotary_factor where the key is absent; 0: no such key
  bool gemma = false;            // 1 + w, scaled embeddings, query_pre_attn_scalar, softcaps
  double attention_softcap = 0;  // where the keys are absent
  double logit_softcap = 0;
  bool window_rope = false;  // a rotation of its own for layers with the window
  bool multipliers = false;  // Granite's
  bool unrotated = false;    // no_rope_layers
};

const std::vector<DenseType>& dense_types() {
  using spec::Activation;
  using spec::NormPlacement;
  using spec::QueryKeyNorm;
  static const std::vector<DenseType> types = {
      {.family = HfFamily::mistral,
       .kv_heads = 8,
       .attention_bias = AttentionBias::none,
       .windows = Windows::all,
       .window = 4096},
      {.family = HfFamily::qwen2,
       .kv_heads = 32,
       .attention_bias = AttentionBias::always_qkv,
       .windows = Windows::above,
       .window = 4096},
      {.family = HfFamily::qwen3,
       .kv_heads = 32,
       .head_dim = 128,
       .windows = Windows::above,
       .window = 4096,
       .query_key_norm = QueryKeyNorm::head},
      {.family = HfFamily::gemma2,
       .activation = Activation::geglu,
       .tied = true,
       .kv_heads = 4,
       .head_dim = 256,
       .windows = Windows::listed,
       .window = 4096,
       .pattern = 2,
       .norms = NormPlacement::both,
       .gemma = true,
       .attention_softcap = 50,
       .logit_softcap = 30},
      {.family = HfFamily::gemma3,
       .activation = Activation::geglu,
       .rope_theta = 1e6,
       .tied = true,
       .kv_heads = 4,
       .head_dim = 256,
       .windows = Windows::listed,
       .window = 4096,
       .pattern = 6,
       .norms = NormPlacement::both,
       .query_key_norm = QueryKeyNorm::head,
       .gemma = true,
       .window_rope = true},
      {.family = HfFamily::phi3,
       .epsilon = 1e-5,
       .attention_bias = AttentionBias::none,
       .windows = Windows::all,
       .rotated_share = 1},
      {.family = HfFamily::olmo2,
       .epsilon = 1e-5,
       .norms = NormPlacement::after,
       .query_key_norm = QueryKeyNorm::whole},
      {.family = HfFamily::smollm3,
       .rope_theta = 2e6,
       .tied = true,
       .kv_heads = 4,
       .mlp_bias = true,
       .windows = Windows::above,
       .unrotated = true},
      {.family = HfFamily::granite, .mlp_bias = true, .multipliers = true},
      {.family = HfFamily::glm4,
       .epsilon = 1.5625e-7,
       .kv_heads = 2,
       .head_dim = 128,
       .attention_bias = AttentionBias::qkv,
       .usual_attention_bias = true,
       .norms = NormPlacement::both,
       .rotated_share = 0.5},
  };
  return types;
}

const DenseType* find_type(HfFamily family) {
  for (const DenseType& type : dense_types()) {
    if (type.family == family) return &type;
  }
  return nullptr;
}

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// The layers of "layer_types" that see everything; none where the key is absent.
std::optional<std::vector<int64_t>> listed_global_layers(HfKeys& keys, const Json& config,
                                                         int64_t layers, std::string_view path) {
  if (!keys.has("layer_types")) return std::nullopt;
  const Json& list = config.at("layer_types");
  if (!list.is_array() || static_cast<int64_t>(list.size()) != layers) {
    fail(ErrorKind::usage, "{}: 'layer_types' is no list of {} kinds of layers", path, layers);
  }
  std::vector<int64_t> global;
  for (int64_t i = 0; i < layers; ++i) {
    const Json& kind = list.at(static_cast<size_t>(i));
    if (kind == kFull) {
      global.push_back(i);
    } else if (kind != kSliding) {
      keys.refuse("layer_types", fmt::format("lists of \"{}\" and \"{}\"", kFull, kSliding));
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
  model.attention_scale = 1 / std::sqrt(keys.real("query_pre_attn_scalar", 256));
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
    fail(ErrorKind::usage, "{}: 'no_rope_layers' is no list of {} numbers", path, model.layers);
  }
  for (int64_t i = 0; i < model.layers; ++i) {
    const bool rotated = given ? config.at("no_rope_layers").at(static_cast<size_t>(i)) == 1
                               : (i + 1) % interval != 0;
    if (!rotated) model.unrotated_layers.push_back(i);
  }
}

void read_all_ropes(const DenseType& type, HfKeys& keys, std::string_view path, HfModel& out) {
  ModelConfig& model = out.model;
  model.rope_theta = keys.real("rope_theta", type.rope_theta);
  if (type.window_rope) model.window_rope_theta = keys.real("rope_local_base_freq", 1e4);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(key)) continue;
    const Json& object = keys.object(key);
    if (!type.window_rope || !object.contains(kFull)) {
      read_rope(object, path, key, model.rope_theta, out);
      continue;
    }
    read_rope(object.at(kFull), path, fmt::format("{}.{}", key, kFull), model.rope_theta, out);
    if (!object.contains(kSliding)) continue;
    HfModel window;
    read_rope(object.at(kSliding), path, fmt::format("{}.{}", key, kSliding),
              model.window_rope_theta, window);
    if (window.model.rope_scaling != spec::RopeScaling{}) {
      fail(ErrorKind::unsupported,
           "{}: '{}.{}' scales the rotation of layers with a window, which Tutti cannot compute; "
           "accepted: rope_type default",
           path, key, kSliding);
    }
  }
}

int64_t dims_of_share(double head_dim, double share) {
  return static_cast<int64_t>(head_dim * share);
}

// "partial_rotary_factor" where newer files have it.
std::optional<double> share_within(const Json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto object = config.find(key);
    if (object == config.end() || !object->is_object()) continue;
    const auto inner = object->find("partial_rotary_factor");
    if (inner != object->end() && inner->is_number()) return inner->get<double>();
  }
  return std::nullopt;
}

// int(head_dim * partial_rotary_factor), as transformers counts.
void read_rotated_dims(const DenseType& type, HfKeys& keys, const Json& config,
                       ModelConfig& model) {
  if (type.rotated_share == 0) {
    keys.only("partial_rotary_factor", {1});
    return;
  }
  const double share =
      share_within(config).value_or(keys.real("partial_rotary_factor", type.rotated_share));
  const int64_t head_dim = keys.has("head_dim") ? keys.count("head_dim")
                           : type.head_dim > 0  ? type.head_dim
                                                : model.hidden / model.heads;
  const int64_t rotated = dims_of_share(static_cast<double>(head_dim), share);
  model.rotated_dims = rotated == head_dim ? 0 : rotated;
}

void write_windows(const DenseType& type, const ModelConfig& model, Json& config) {
  if (type.windows == Windows::none) return;
  config["sliding_window"] = model.window > 0 ? Json(model.window) : Json(nullptr);
  if (type.windows == Windows::all) return;
  if (type.windows == Windows::above) config["use_sliding_window"] = model.window > 0;
  if (model.window == 0 && type.windows == Windows::above) return;
  Json kinds = Json::array();
  for (int64_t i = 0; i < model.layers; ++i) {
    const bool global = model.window == 0 || std::binary_search(model.global_layers.begin(),
                                                                model.global_layers.end(), i);
    kinds.push_back(global ? kFull : kSliding);
  }
  config["layer_types"] = std::move(kinds);
  if (type.windows != Windows::above) return;
  // What transformers before 4.53 reads instead.
  int64_t first = 0;
  while (first < static_cast<int64_t>(model.global_layers.size()) &&
         model.global_layers[static_cast<size_t>(first)] == first) {
    ++first;
  }
  config["max_window_layers"] = first;
}

// The share whose product with head_dim is cut off to rotated_dims.
double rotated_share(const ModelConfig& model) {
  const auto head_dim = static_cast<double>(model.head_dim);
  const auto rotated = static_cast<double>(spec::rotated_dims(model));
  double share = rotated / head_dim;
  while (dims_of_share(head_dim, share) < spec::rotated_dims(model)) {
    share = std::nextafter(share, 2.0);
  }
  return share;
}

}  // namespace

bool is_dense_family(HfFamily family) { return find_type(family) != nullptr; }

int64_t usual_head_dim(HfFamily family) {
  const DenseType* type = find_type(family);
  return type == nullptr ? 0 : type->head_dim;
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
  return out;
}

void read_rope(const Json& object, std::string_view path, const std::string& name, double& theta,
               HfModel& out) {
  HfKeys keys(object, path, name + ".");
  const char* type_key = keys.has("rope_type") ? "rope_type" : "type";
  const std::string type = keys.text(type_key, "default");
  keys.only(type_key, {"default", "llama3", "linear", "yarn"});
  keys.know("type");
  if (keys.has("rope_theta")) theta = keys.real("rope_theta");
  keys.know("partial_rotary_factor");
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
    keys.only("mscale", {}, "none (attention_factor says it)");
    keys.only("mscale_all_dim", {}, "none (attention_factor says it)");
    keys.only("truncate", {true});
  }
  for (const std::string& key : keys.unknown()) {
    out.notes.push_back(fmt::format("{}.{}: ignored, type {} does not use it", name, key, type));
  }
}

void keep_rotated_share(const ModelConfig& model, const Json& original, Json& config) {
  if (!config.contains("partial_rotary_factor")) return;
  std::optional<double> share = share_within(original);
  const auto given = original.find("partial_rotary_factor");
  if (!share && given != original.end() && given->is_number()) share = given->get<double>();
  const auto head_dim = static_cast<double>(model.head_dim);
  if (share && dims_of_share(head_dim, *share) == spec::rotated_dims(model)) {
    config["partial_rotary_factor"] = *share;
  }
}

void read_dense(HfKeys& keys, const Json& config, std::string_view path, HfModel& out) {
  const DenseType& type = *find_type(out.family);
  ModelConfig& model = out.model;
  model.vocabulary = keys.count("vocab_size");
  model.context = keys.count("max_position_embeddings");
  model.hidden = keys.count("hidden_size");
  model.layers = keys.count("num_hidden_layers");
  model.heads = keys.count("num_attention_heads");
  // null means one per head in all of them.
  const bool as_heads = type.kv_heads == 0 || config.contains("num_key_value_heads");
  model.kv_heads = keys.count("num_key_value_heads", as_heads ? model.heads : type.kv_heads);
  model.ffn = keys.count("intermediate_size");
  model.norm = spec::Norm::rms;
  model.norm_bias = false;
  model.norm_epsilon = keys.real("rms_norm_eps", type.epsilon);
  model.norm_placement = type.norms;
  model.query_key_norm = type.query_key_norm;
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
      out.notes.push_back(fmt::format("{} {}: left out; it acts in training only", key, dropout));
    }
  }
  keys.know("original_max_position_embeddings");  // of longrope, which is refused
  read_biases(type, keys, model);
  read_windows(type, keys, config, path, model);
  read_all_ropes(type, keys, path, out);
  read_rotated_dims(type, keys, config, model);
  if (type.gemma) read_gemma(type, keys, config, model);
  if (type.unrotated) read_unrotated(keys, config, path, model);
  if (!type.multipliers) return;
  model.embedding_multiplier = keys.real("embedding_multiplier", 1);
  model.residual_multiplier = keys.real("residual_multiplier", 1);
  model.logit_divisor = keys.real("logits_scaling", 1);
  model.attention_scale = keys.real("attention_multiplier", 1);
}

void write_dense(const ModelConfig& model, HfFamily family, Json& config) {
  const DenseType& type = *find_type(family);
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
  if (scaled || type.family != HfFamily::mistral) {
    config["rope_scaling"] = scaled ? rope_scaling_object(model.rope_scaling) : Json(nullptr);
  }
  if (type.rotated_share > 0) config["partial_rotary_factor"] = rotated_share(model);
  if (type.window_rope) config["rope_local_base_freq"] = model.window_rope_theta;
  write_windows(type, model, config);
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
