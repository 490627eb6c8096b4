// A decoder-only transformer as plain values: GPT-2/3, Llama, mixture-of-experts (Mixtral,
// DeepSeek-V3). All sizes are global, before any sharding.
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
  double capacity_factor = 0;      // 0: dropless
  double balance_loss = 0;
  double z_loss = 0;
  bool router_bias = false;  // a selection bias per expert (DeepSeek-V3), updated without gradient
};

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

// Throws usage naming the first impossible value: heads not dividing, kv_heads not dividing heads,
// odd head_dim with rope, sizes below one, latent or moe fields missing, ...
void validate(const ModelConfig& model);

}  // namespace tutti::spec
