// A decoder-only transformer as plain values: GPT-2/3, Llama, mixture-of-experts (Mixtral,
// DeepSeek-V3). All sizes are global, before any sharding.
//
// A router chooses by the softmax over all experts and weighs the chosen by their probabilities
// over their sum (Mixtral's rule; top_k 1 weighs 1). Sigmoid scores and groups of experts are not
// described.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::spec {

enum class Norm { layer, rms };
enum class Activation { gelu, swiglu };
enum class Positions { learned, rope };
enum class Attention { grouped, latent };  // latent: DeepSeek's multi-head latent attention (MLA)

// Llama 3.1's frequency scaling; factor 1 = none.
struct RopeScaling {
  bool operator==(const RopeScaling&) const = default;
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_context = 8192;
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
  bool linear_bias = true;
  bool norm_bias = true;
  bool tied_embeddings = true;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  double init_std = 0.02;
  double dropout = 0;  // of the embedding and of both residual branches
  LatentAttention latent;
  MixtureOfExperts moe;
  int64_t prediction_layers = 0;  // multi-token-prediction modules (DeepSeek-V3), not executed

  bool operator==(const ModelConfig&) const = default;
};

// Whether layer `layer` is a mixture of experts.
bool is_routed(const ModelConfig& model, int64_t layer);

// Throws usage naming the first impossible value: heads not dividing, kv_heads not dividing heads,
// odd head_dim with rope, sizes below one, latent or moe fields missing, ...
void validate(const ModelConfig& model);

}  // namespace tutti::spec
