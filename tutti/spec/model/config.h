// A decoder-only transformer as plain values: GPT-2/3, Llama, mixture-of-experts (Mixtral,
// DeepSeek-V3). All sizes are global, before any sharding.
//
// A router scores experts by the softmax over all or each alone (RouterScores) and selects the top
// k of all or of the best groups. It weighs them by their scores, divided by their sum (Mixtral's
// rule; top_k 1 weighs 1) or unchanged (OLMoE), times a factor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::spec {

inline constexpr int64_t kMostLayers = int64_t{1} << 20;  // or experts per layer

enum class Norm { layer, rms };
// All but gelu are gated; engine/ops.h defines clamped_swiglu (gpt-oss).
enum class Activation { gelu, swiglu, geglu, clamped_swiglu };
enum class Positions { learned, rope };
enum class Attention { grouped, latent };  // latent: DeepSeek's multi-head latent attention (MLA)

// Norms of a block: before attention and MLP (x += f(norm(x))), after them (OLMo 2:
// x += norm(f(x))), or both (Gemma 2, GLM-4).
enum class NormPlacement { before, both, after };
// RMSNorm of queries and keys before RoPE: per head (Qwen3, Gemma 3), or over all heads together
// (OLMo 2).
enum class QueryKeyNorm { none, head, whole };

// Projections of a dense block, in forward order: queries, keys and values; attention output; input
// (with the gate) and output of the feed-forward network.
enum class Projection { qkv, output, up, down };

// RoPE scaling beyond the context of pre-training; factor 1: none.
//    llama3  lowers frequencies as rope_frequency.h states (Llama 3.1)
//    linear  divides all frequencies by the factor (Chen et al. 2023)
//    yarn    Peng et al. 2023: divides those with fewer than slow_turns turns in original_context
//            by the factor, keeps those with more than fast_turns turns, and blends in between;
//            queries and keys are multiplied by `amplitude`
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
  bool rounded = true;   // round the bounds of the blend to whole pairs
};

// Projections that have biases although linear_bias is false.
struct ProjectionBiases {
  bool operator==(const ProjectionBiases&) const = default;
  bool qkv = false;
  bool output = false;
  bool up = false;
  bool down = false;
};

// Of every expert the softmax over all, or the sigmoid of its own logit (DeepSeek-V3).
enum class RouterScores { softmax, sigmoid };

// DeepSeek-V2, section 2.1. Rotated columns come first, in heads of queries and keys and in what is
// compressed (in published checkpoints they come last).
struct LatentAttention {  // only with Attention::latent
  bool operator==(const LatentAttention&) const = default;
  int64_t query_rank = 0;  // 0: no compression of queries
  int64_t key_value_rank = 0;
  int64_t nope_head_dim = 0;  // per head, without RoPE
  int64_t rope_head_dim = 0;  // per head, with RoPE; all heads share the key part
  int64_t value_head_dim = 0;
  double norm_epsilon = 0;  // of the norms of what is compressed; 0: ModelConfig::norm_epsilon
};

struct MixtureOfExperts {
  bool operator==(const MixtureOfExperts&) const = default;
  int64_t experts = 0;  // 0: dense model
  int64_t top_k = 0;
  int64_t expert_ffn = 0;
  int64_t shared_experts = 0;      // always-on experts of expert_ffn each
  int64_t first_dense_layers = 0;  // these have the dense MLP of width ffn
  double capacity_factor = 0;      // 0: dropless; otherwise see expert_capacity
  // Weight of the mean over sequences and routed layers of E * sum_e f_e p_e (engine/moe_ops.h:
  // route_backward); with masked targets times rows per target.
  double balance_loss = 0;
  double z_loss = 0;         // weight of the mean over tokens and routed layers of lse^2
  bool router_bias = false;  // a selection bias per expert (DeepSeek-V3), updated without gradient:
  double router_bias_rate = 1e-3;  // by this much per step, towards the mean load
  bool renormalize = true;         // divide the weights of the selected experts by their sum
  bool biases = false;             // of the router's logits and of the experts' projections
  RouterScores scores = RouterScores::softmax;
  // A token chooses within the top_groups best of `groups` groups of consecutive experts; the mark
  // of a group is the sum of its group_best largest scores with their selection bias. 1: no groups.
  int64_t groups = 1;
  int64_t top_groups = 1;
  int64_t group_best = 1;    // DeepSeek-V2: 1, V3: 2
  double weight_factor = 1;  // of the weights of the chosen experts
};

// Most tokens that an expert takes of one sequence, the earliest first: ceil(capacity_factor *
// sequence * top_k / experts), at least 1. 0: no limit. The limit is per sequence, so that drops do
// not depend on micro-batches and ranks.
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

  // With norm: rms only.
  NormPlacement norm_placement = NormPlacement::before;
  double norm_offset = 0;  // added to the weights of all norms, which then start at 0 (Gemma: 1)
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;

  double attention_scale = 0;  // of scores; 0: 1 / sqrt(key_dim())
  // A learned logit per head in the softmax, without a value: lets a head attend to nothing
  // (attention sinks; gpt-oss).
  bool attention_sinks = false;
  double attention_softcap = 0;  // scores s become cap * tanh(s / cap) (Gemma 2); 0: none
  double logit_softcap = 0;      // the same for the head's logits
  // Multipliers of the embedding's output (Gemma: sqrt(hidden); Granite) and of what every
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double logit_divisor = 1;

  // Sliding window: a token attends to itself and to the window - 1 tokens before it; in global
  // layers to all tokens before it. 0: no window.
  int64_t window = 0;
  std::vector<int64_t> global_layers;  // ascending; only with a window
  double window_rope_theta = 0;        // of layers with the window, without scaling; 0: rope_theta

  int64_t rotated_dims = 0;               // leading columns of a head with RoPE; 0: all
  std::vector<int64_t> unrotated_layers;  // ascending (SmolLM3)

  bool operator==(const ModelConfig&) const = default;
};

// Whether layer `layer` is a mixture of experts.
bool is_routed(const ModelConfig& model, int64_t layer);

bool is_gated(const ModelConfig& model);  // its activation is gated
bool has_bias(const ModelConfig& model, Projection projection);
int64_t rotated_dims(const ModelConfig& model);  // per head
// Columns of a head of queries or keys, and of values.
int64_t key_dim(const ModelConfig& model);
int64_t value_dim(const ModelConfig& model);
// Elements of a token and layer in the cache of generation: keys and values, or with latent
// attention their source, the normed compressed row and the shared rotated columns.
int64_t cached_columns(const ModelConfig& model);
// The window of a layer for sequences of `sequence` tokens; 0: a token attends to all before it.
int64_t window_of(const ModelConfig& model, int64_t layer, int64_t sequence);
bool has_windows(const ModelConfig& model, int64_t sequence);  // any layer
bool is_rotated(const ModelConfig& model, int64_t layer);
// Whether its RoPE uses window_rope_theta.
bool has_window_rope(const ModelConfig& model, int64_t layer);

// Throws usage naming the first impossible value: heads not dividing, kv_heads not dividing heads,
// odd head_dim with rope, sizes below one, latent or moe fields missing, ...
void validate(const ModelConfig& model);

}  // namespace tutti::spec
