#include "tutti/spec/model/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::spec {
namespace {

constexpr int64_t kLargestSize = int64_t{1} << 30;  // keeps products of two sizes in range
constexpr double kMostParameters = 0x1p56;          // keeps their bytes in range

void check_size(const char* key, int64_t value, int64_t least = 1, int64_t most = kLargestSize) {
  if (value < least || value > most) {
    fail(ErrorKind::usage, "model.{}: {} is out of range; accepted: {} to {}", key, value, least,
         most);
  }
}

// An upper bound of the number of parameters.
double most_parameters(const ModelConfig& model) {
  const auto real = [](int64_t size) { return static_cast<double>(size); };
  const LatentAttention& latent = model.latent;
  const double head =
      real(model.head_dim + latent.nope_head_dim + latent.rope_head_dim + latent.value_head_dim);
  const double inner = real(model.hidden + latent.query_rank + latent.key_value_rank);
  const double width = real(model.ffn) + real(model.moe.experts + model.moe.shared_experts) *
                                             real(std::max<int64_t>(1, model.moe.expert_ffn));
  const double layers = real(model.layers + model.prediction_layers);
  return layers *
             (4 * inner * (real(model.heads) * head + inner) + 3 * real(model.hidden) * width) +
         real(model.hidden) * real(2 * model.vocabulary + model.context);
}

void check_real(const char* key, double value, double least, double most) {
  if (!(value >= least && value <= most)) {
    fail(ErrorKind::usage, "model.{}: {} is out of range; accepted: {} to {}", key, value, least,
         most);
  }
}

// The divisor of `whole` nearest to `wanted`.
int64_t nearest_divisor(int64_t whole, int64_t wanted) {
  int64_t best = 1;
  for (int64_t d = 1; d <= whole / d; ++d) {
    if (whole % d != 0) continue;
    for (const int64_t candidate : {d, whole / d}) {
      if (std::llabs(candidate - wanted) < std::llabs(best - wanted)) best = candidate;
    }
  }
  return best;
}

void validate_grouped(const ModelConfig& model) {
  if (model.head_dim * model.heads != model.hidden && model.hidden % model.heads != 0 &&
      model.head_dim == model.hidden / model.heads) {
    fail(ErrorKind::usage,
         "model.heads: {} does not divide model.hidden {}; nearest that does: {} (or give "
         "model.head_dim)",
         model.heads, model.hidden, nearest_divisor(model.hidden, model.heads));
  }
  if (model.kv_heads > model.heads || model.heads % model.kv_heads != 0) {
    fail(ErrorKind::usage, "model.kv_heads: {} does not divide model.heads {}; nearest: {}",
         model.kv_heads, model.heads, nearest_divisor(model.heads, model.kv_heads));
  }
  if (model.positions == Positions::rope && model.rotated_dims == 0 && model.head_dim % 2 != 0) {
    fail(ErrorKind::usage,
         "model.head_dim: {} is odd, but RoPE rotates pairs; write an even number", model.head_dim);
  }
}

void validate_latent(const ModelConfig& model) {
  const LatentAttention& latent = model.latent;
  check_size("latent.query_rank", latent.query_rank, 0);
  check_size("latent.key_value_rank", latent.key_value_rank);
  check_size("latent.nope_head_dim", latent.nope_head_dim);
  check_size("latent.rope_head_dim", latent.rope_head_dim);
  check_size("latent.value_head_dim", latent.value_head_dim);
  if (latent.rope_head_dim % 2 != 0) {
    fail(ErrorKind::usage, "model.latent.rope_head_dim: {} is odd; write an even number",
         latent.rope_head_dim);
  }
  check_real("latent.norm_epsilon", latent.norm_epsilon, 0, 1);
  if (model.norm != Norm::rms) {
    fail(ErrorKind::usage, "model.attention: latent needs model.norm: rms");
  }
  if (model.positions != Positions::rope) {
    fail(ErrorKind::usage, "model.attention: latent needs model.positions: rope");
  }
  if (model.kv_heads != model.heads) {
    fail(ErrorKind::usage,
         "model.kv_heads: {} has no meaning with latent attention; leave it out (equal to "
         "model.heads {})",
         model.kv_heads, model.heads);
  }
  if (model.biases.qkv) {
    fail(ErrorKind::usage,
         "model.biases: qkv has no meaning with latent attention; remove it from the list");
  }
}

void validate_router(const MixtureOfExperts& moe) {
  constexpr int64_t kMostGroups = 256;
  if (moe.groups < 1 || moe.groups > kMostGroups || moe.experts % moe.groups != 0) {
    fail(ErrorKind::usage,
         "model.moe.groups: {} does not divide model.moe.experts {}, or is above {}; nearest that "
         "does: {}",
         moe.groups, moe.experts, kMostGroups,
         nearest_divisor(moe.experts, std::clamp<int64_t>(moe.groups, 1, kMostGroups)));
  }
  const int64_t width = moe.experts / moe.groups;
  if (moe.top_groups < 1 || moe.top_groups > moe.groups) {
    fail(ErrorKind::usage,
         "model.moe.top_groups: {} is out of range; accepted: 1 to model.moe.groups {}",
         moe.top_groups, moe.groups);
  }
  if (moe.top_k > moe.top_groups * width) {
    fail(ErrorKind::usage, "model.moe.top_k: {}, but {} groups of {} experts have {}", moe.top_k,
         moe.top_groups, width, moe.top_groups * width);
  }
  if (moe.group_best < 1 || moe.group_best > width) {
    fail(ErrorKind::usage,
         "model.moe.group_best: {} is out of range; accepted: 1 to {}, the experts of a group",
         moe.group_best, width);
  }
  check_real("moe.weight_factor", moe.weight_factor, 1e-6, 1e6);
  if (moe.scores == RouterScores::sigmoid && moe.z_loss > 0) {
    fail(ErrorKind::usage,
         "model.moe.z_loss: {} with moe.scores: sigmoid, which has no sum over experts; write 0",
         moe.z_loss);
  }
}

void validate_moe(const ModelConfig& model) {
  const MixtureOfExperts& moe = model.moe;
  check_size("moe.experts", moe.experts, 0, kMostLayers);
  if (moe.experts == 0) {
    if (moe != MixtureOfExperts{}) {
      fail(ErrorKind::usage,
           "model.moe.experts: 0 (a dense model), but other keys of model.moe are "
           "set; set model.moe.experts or remove them");
    }
    return;
  }
  if (moe.top_k < 1 || moe.top_k > moe.experts) {
    fail(ErrorKind::usage,
         "model.moe.top_k: {} is out of range; accepted: 1 to model.moe.experts {}", moe.top_k,
         moe.experts);
  }
  check_size("moe.expert_ffn", moe.expert_ffn);
  check_size("moe.shared_experts", moe.shared_experts, 0);
  if (moe.first_dense_layers < 0 || moe.first_dense_layers > model.layers) {
    fail(ErrorKind::usage,
         "model.moe.first_dense_layers: {} is out of range; accepted: 0 to model.layers {}",
         moe.first_dense_layers, model.layers);
  }
  check_real("moe.capacity_factor", moe.capacity_factor, 0, 1e6);
  check_real("moe.balance_loss", moe.balance_loss, 0, 1e6);
  check_real("moe.z_loss", moe.z_loss, 0, 1e6);
  check_real("moe.router_bias_rate", moe.router_bias_rate, 0, 1);
  validate_router(moe);
  if (moe.biases && moe.router_bias) {
    fail(ErrorKind::usage,
         "model.moe.biases: true, but model.moe.router_bias gives the router a bias already; write "
         "false for one of them");
  }
}

}  // namespace

int64_t expert_capacity(const MixtureOfExperts& moe, int64_t sequence) {
  if (moe.capacity_factor == 0) return 0;
  const double even = static_cast<double>(sequence * moe.top_k) / static_cast<double>(moe.experts);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(moe.capacity_factor * even)));
}

bool is_routed(const ModelConfig& model, int64_t layer) {
  return model.moe.experts > 0 && layer >= model.moe.first_dense_layers;
}

bool is_gated(const ModelConfig& model) { return model.activation != Activation::gelu; }

bool has_bias(const ModelConfig& model, Projection projection) {
  if (model.linear_bias) return true;
  switch (projection) {
    case Projection::qkv: return model.biases.qkv;
    case Projection::output: return model.biases.output;
    case Projection::up: return model.biases.up;
    case Projection::down: return model.biases.down;
  }
  return false;
}

int64_t rotated_dims(const ModelConfig& model) {
  if (model.attention == Attention::latent) return model.latent.rope_head_dim;
  return model.rotated_dims > 0 ? model.rotated_dims : model.head_dim;
}

int64_t key_dim(const ModelConfig& model) {
  const LatentAttention& latent = model.latent;
  return model.attention == Attention::latent ? latent.nope_head_dim + latent.rope_head_dim
                                              : model.head_dim;
}

int64_t value_dim(const ModelConfig& model) {
  return model.attention == Attention::latent ? model.latent.value_head_dim : model.head_dim;
}

int64_t cached_columns(const ModelConfig& model) {
  return model.attention == Attention::latent
             ? model.latent.key_value_rank + model.latent.rope_head_dim
             : 2 * model.kv_heads * model.head_dim;
}

namespace {

bool holds_layer(const std::vector<int64_t>& layers, int64_t layer) {
  return std::binary_search(layers.begin(), layers.end(), layer);
}

void check_layers(const char* key, const std::vector<int64_t>& layers, int64_t count) {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] >= count || (i > 0 && layers[i] <= layers[i - 1])) {
      fail(ErrorKind::usage, "model.{}: {} at index {}; accepted: layers 0 to {}, ascending", key,
           layers[i], i, count - 1);
    }
  }
}

// Optional parts that need norm: rms, many of them with grouped attention only.
void validate_parts(const ModelConfig& model) {
  if (model.linear_bias && model.biases != ProjectionBiases{}) {
    fail(ErrorKind::usage,
         "model.biases: set, but model.linear_bias is true, which gives all projections one; write "
         "linear_bias: false or remove biases");
  }
  check_real("attention_scale", model.attention_scale, 0, 1e6);
  check_real("attention_softcap", model.attention_softcap, 0, 1e6);
  check_real("logit_softcap", model.logit_softcap, 0, 1e6);
  check_real("embedding_multiplier", model.embedding_multiplier, 1e-6, 1e6);
  check_real("residual_multiplier", model.residual_multiplier, 1e-6, 1e6);
  check_real("logit_divisor", model.logit_divisor, 1e-6, 1e6);
  check_real("norm_offset", model.norm_offset, 0, 1);
  check_size("window", model.window, 0);
  check_layers("global_layers", model.global_layers, model.layers);
  check_layers("unrotated_layers", model.unrotated_layers, model.layers);
  const bool rms = model.norm == Norm::rms;
  const bool grouped = model.attention == Attention::grouped;
  const auto needs = [](bool set, bool met, const char* key, const char* wanted) {
    if (set && !met) fail(ErrorKind::usage, "model.{}: set, which needs {}", key, wanted);
  };
  needs(model.norm_placement != NormPlacement::before, rms, "norm_placement", "model.norm: rms");
  needs(model.norm_offset != 0, rms, "norm_offset", "model.norm: rms");
  needs(model.query_key_norm != QueryKeyNorm::none, rms && grouped, "query_key_norm",
        "model.norm: rms and model.attention: grouped");
  needs(model.window > 0, grouped, "window", "model.attention: grouped");
  needs(model.attention_softcap > 0, grouped, "attention_softcap", "model.attention: grouped");
  needs(model.attention_sinks, grouped, "attention_sinks", "model.attention: grouped");
  needs(!model.global_layers.empty(), model.window > 0, "global_layers", "model.window");
  needs(model.window_rope_theta != 0, model.window > 0, "window_rope_theta", "model.window");
  needs(model.rotated_dims > 0 || !model.unrotated_layers.empty() || model.window_rope_theta != 0,
        model.positions == Positions::rope && grouped,
        "rotated_dims, unrotated_layers or window_rope_theta",
        "model.positions: rope and model.attention: grouped");
  if (model.window_rope_theta != 0)
    check_real("window_rope_theta", model.window_rope_theta, 1, 1e15);
  if (model.rotated_dims < 0 || model.rotated_dims > model.head_dim ||
      model.rotated_dims % 2 != 0) {
    fail(ErrorKind::usage,
         "model.rotated_dims: {} is out of range; accepted: even numbers up to model.head_dim {}",
         model.rotated_dims, model.head_dim);
  }
}

void validate_rope_scaling(const RopeScaling& scaling) {
  check_real("rope_scaling.factor", scaling.factor, 1, 1e6);
  check_real("rope_scaling.low_frequency_factor", scaling.low_frequency_factor, 1e-6, 1e6);
  check_real("rope_scaling.high_frequency_factor", scaling.high_frequency_factor, 1e-6, 1e6);
  check_real("rope_scaling.fast_turns", scaling.fast_turns, 1e-6, 1e6);
  check_real("rope_scaling.slow_turns", scaling.slow_turns, 1e-6, 1e6);
  check_real("rope_scaling.amplitude", scaling.amplitude, 0, 1e3);
  check_size("rope_scaling.original_context", scaling.original_context);
  if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
    fail(ErrorKind::usage,
         "model.rope_scaling.high_frequency_factor: {} must be above low_frequency_factor {}",
         scaling.high_frequency_factor, scaling.low_frequency_factor);
  }
  if (scaling.fast_turns <= scaling.slow_turns) {
    fail(ErrorKind::usage, "model.rope_scaling.fast_turns: {} must be above slow_turns {}",
         scaling.fast_turns, scaling.slow_turns);
  }
}

}  // namespace

int64_t window_of(const ModelConfig& model, int64_t layer, int64_t sequence) {
  const bool sees_all = model.window == 0 || model.window >= sequence;
  return sees_all || holds_layer(model.global_layers, layer) ? 0 : model.window;
}

bool has_windows(const ModelConfig& model, int64_t sequence) {
  return model.window > 0 && model.window < sequence &&
         static_cast<int64_t>(model.global_layers.size()) < model.layers;
}

bool is_rotated(const ModelConfig& model, int64_t layer) {
  return model.positions == Positions::rope && !holds_layer(model.unrotated_layers, layer);
}

bool has_window_rope(const ModelConfig& model, int64_t layer) {
  return model.window_rope_theta > 0 && !holds_layer(model.global_layers, layer);
}

void validate(const ModelConfig& model) {
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, int64_t>>{{"layers", model.layers},
                                                    {"hidden", model.hidden},
                                                    {"heads", model.heads},
                                                    {"kv_heads", model.kv_heads},
                                                    {"head_dim", model.head_dim},
                                                    {"ffn", model.ffn},
                                                    {"vocabulary", model.vocabulary},
                                                    {"context", model.context}}) {
    check_size(key, value);
  }
  check_size("layers", model.layers, 1, kMostLayers);
  check_size("prediction_layers", model.prediction_layers, 0, kMostLayers);
  check_real("norm_epsilon", model.norm_epsilon, 1e-30, 1);
  check_real("rope_theta", model.rope_theta, 1, 1e15);
  check_real("init_std", model.init_std, 0, 1e3);
  if (!(model.dropout >= 0 && model.dropout < 1)) {
    fail(ErrorKind::usage, "model.dropout: {} is out of range; accepted: 0 to below 1",
         model.dropout);
  }
  const RopeScaling& scaling = model.rope_scaling;
  validate_rope_scaling(scaling);
  if (scaling != RopeScaling{} && model.positions != Positions::rope) {
    fail(ErrorKind::usage,
         "model.rope_scaling: set, but model.positions is learned; write "
         "positions: rope or remove it");
  }
  if (model.norm == Norm::rms && model.norm_bias) {
    fail(ErrorKind::usage, "model.norm_bias: true, but norm: rms has no bias; write false");
  }
  if (model.attention == Attention::latent) {
    validate_latent(model);
  } else {
    if (model.latent != LatentAttention{}) {
      fail(ErrorKind::usage,
           "model.latent: set, but model.attention is grouped; write "
           "attention: latent or remove it");
    }
    validate_grouped(model);
  }
  validate_moe(model);
  validate_parts(model);
  if (const double parameters = most_parameters(model); parameters > kMostParameters) {
    fail(
        ErrorKind::usage,
        "model.hidden: {} and the other sizes of the model give {:.2g} parameters; accepted: up to "
        "{:.2g}",
        model.hidden, parameters, kMostParameters);
  }
}

}  // namespace tutti::spec
