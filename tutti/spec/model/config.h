// A decoder-only transformer as plain values: GPT-2/3, Llama, mixture-of-experts (Mixtral,
// DeepSeek-V3). All sizes are global, before any sharding.
//
// A router chooses by the softmax over all experts and weighs the chosen by their probabilities,
// over their sum (Mixtral's rule; top_k 1 weighs 1) or as they are (OLMoE). Sigmoid scores and
// groups of experts are not described.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::spec {

inline constexpr int64_t kMostLayers = int64_t{1} << 20;  // or experts of a layer

enum class Norm { layer, rms };
// All but gelu have a gate; clamped_swiglu (gpt-oss) is in engine/ops.h.
enum class Activation { gelu, swiglu, geglu, clamped_swiglu };
enum class Positions { learned, rope };
enum class Attention { grouped, latent };  // latent: DeepSeek's multi-head latent attention (MLA)

// Where a block's norms are: before attention and MLP (x += f(norm(x))), after them (OLMo 2:
// x += norm(f(x))), or both (Gemma 2, GLM-4).
enum class NormPlacement { before, both, after };
// RMSNorm of queries and keys before their rotation: of each head (Qwen3, Gemma 3), or of all heads
// together (OLMo 2).
enum class QueryKeyNorm { none, head, whole };

// Projections of a dense block, in forward order: of queries, keys and values; of attention's
// output; of the feed-forward network's input (with its gate) and output.
enum class Projection { qkv, output, up, down };

// How rotation reaches beyond the context of pre-training; factor 1 = not at all.
//   llama3  frequencies are slowed as rope_frequency.h says (Llama 3.1)
//   linear  all frequencies are divided by the factor (Chen et al. 2023)
//   yarn    Peng et al. 2023: those that turn less than slow_turns times in original_context are
//           divided by the factor, those that turn more than fast_turns times stay, between them
//           both are blended; queries and keys are multiplied by `amplitude`
enum class RopeScalingKind { llama3, linear, yarn };
struct RopeScaling {
  bool operator==(const RopeScaling&) const = default;
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_context = 8192;
  RopeScalingKind kind = RopeScalingKind::llama3;
  double fast_turns = 32;  // yarn
  double slow_turns = 1;
  double amplitude = 0;  // 0: 0.1 ln(factor) + 1
  bool rounded = true;   // the pairs between which frequencies are blended are whole numbers
};

// Where linear_bias is false, these projections have biases all the same.
struct ProjectionBiases {
  bool operator==(const ProjectionBiases&) const = default;
  bool qkv = false;
  bool output = false;
  bool up = false;
  bool down = false;
};

struct LatentAttention {  // only with Attention::latent
  bool operator==(const LatentAttention&) const = default;
  int64_t query_rank = 0;  // 0: queries are not compressed
  int64_t key_value_rank = 0;
  int64_t nope_head_dim = 0;  // per head, without rotation
  int64_t rope_head_dim = 0;  // per head, rotated; the key part is shared by all heads
  int64_t value_head_dim = 0;
};

struct MixtureOfExperts {
  bool operator==(const MixtureOfExperts&) const = default;
  int64_t experts = 0;  // 0: dense model
  int64_t top_k = 0;
  int64_t expert_ffn = 0;
  int64_t shared_experts = 0;      // always-on experts of expert_ffn each
  int64_t first_dense_layers = 0;  // these keep the dense MLP of width ffn
  double capacity_factor = 0;      // 0: dropless; else see expert_capacity
  double balance_loss = 0;         // weight of the mean over sequences and routed layers of
                                   // E * sum_e f_e p_e (engine/moe_ops.h: route_backward); where
                                   // targets are masked, times rows per target
  double z_loss = 0;               // weight of the mean over tokens and routed layers of lse^2
  bool router_bias = false;  // a selection bias per expert (DeepSeek-V3), updated without gradient:
  double router_bias_rate = 1e-3;  // by this much per step, towards the mean load
  bool renormalize = true;         // weights of the chosen experts are divided by their sum
  bool biases = false;             // of the router's logits and of the experts' projections
};

// Copies of one sequence's tokens that an expert takes at most, the earliest tokens first:
// ceil(capacity_factor * sequence * top_k / experts), at least 1. 0: no limit. Per sequence, so
// that what is dropped does not depend on micro-batches and ranks.
int64_t expert_capacity(const MixtureOfExperts& moe, int64_t sequence);

struct ModelConfig {
  std::string name;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocabulary = 0;
  int64_t context = 0;  // longest sequence; rows of the position table with learned positions
  Norm norm = Norm::layer;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::gelu;
  Positions positions = Positions::learned;
  Attention attention = Attention::grouped;
  bool linear_bias = true;  // of every projection of a block
  ProjectionBiases biases;
  bool norm_bias = true;
  bool tied_embeddings = true;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  double init_std = 0.02;
  double dropout = 0;  // of the embedding and of both residual branches
  LatentAttention latent;
  MixtureOfExperts moe;
  int64_t prediction_layers = 0;  // multi-token-prediction modules (DeepSeek-V3), not executed

  // Of norm: rms only.
  NormPlacement norm_placement = NormPlacement::before;
  double norm_offset = 0;  // added to the weights of all norms, which then begin as 0 (Gemma: 1)
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;

  double attention_scale = 0;  // of scores; 0: 1 / sqrt(head_dim)
  // Each head has a score of its own in its softmax, without a value: how little it may look at
  // (attention sinks; gpt-oss).
  bool attention_sinks = false;
  double attention_softcap = 0;  // scores s become cap * tanh(s / cap) (Gemma 2); 0: none
  double logit_softcap = 0;      // the same of the head's logits
  // Multipliers of the embedding's output (Gemma: sqrt(hidden); Granite) and of what every
  // attention and MLP adds to the residual; logits are divided by the third (Granite).
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double logit_divisor = 1;

  // A token sees itself and the window - 1 before it, in all layers but the global ones, where it
  // sees all before it; 0: no window.
  int64_t window = 0;
  std::vector<int64_t> global_layers;  // ascending; with a window only
  double window_rope_theta = 0;        // of layers with the window, without scaling; 0: as others

  int64_t rotated_dims = 0;               // first columns of a head that rotate; 0: all
  std::vector<int64_t> unrotated_layers;  // ascending (SmolLM3)

  bool operator==(const ModelConfig&) const = default;
};

// Whether layer `layer` is a mixture of experts.
bool is_routed(const ModelConfig& model, int64_t layer);

bool is_gated(const ModelConfig& model);  // its activation has a gate
bool has_bias(const ModelConfig& model, Projection projection);
int64_t rotated_dims(const ModelConfig& model);  // of a head
// The window of a layer where sequences are `sequence` tokens long; 0: a token sees all before it.
int64_t window_of(const ModelConfig& model, int64_t layer, int64_t sequence);
bool has_windows(const ModelConfig& model, int64_t sequence);  // any layer
bool is_rotated(const ModelConfig& model, int64_t layer);
// Whether it rotates by window_rope_theta.
bool has_window_rope(const ModelConfig& model, int64_t layer);

// Throws usage naming the first impossible value: heads not dividing, kv_heads not dividing heads,
// odd head_dim with rope, sizes below one, latent or moe fields missing, ...
void validate(const ModelConfig& model);

}  // namespace tutti::spec
