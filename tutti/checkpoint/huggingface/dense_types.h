// Table of the Llama-like model types: the keys of config.json that each has, and the defaults of
// absent keys (those of transformers). Types with experts also have the keys of expert_keys.h.
#pragma once

#include <cstdint>

#include "tutti/checkpoint/huggingface/config.h"

namespace tutti::checkpoint {

// The biases that "attention_bias": true enables.
enum class AttentionBias { none, always_qkv, qkv, all };

// How a type selects the layers with the window.
enum class Windows {
  none,
  all,     // sliding_window, if absent `usual`
  used,    // the same, enabled by use_sliding_window: true
  above,   // use_sliding_window, then layer_types, else layers from max_window_layers on
  listed,  // layer_types, else every pattern-th layer has no window
};

struct DenseType {
  HfFamily family;
  spec::Activation activation = spec::Activation::swiglu;
  double epsilon = 1e-6;
  double rope_theta = 1e4;
  bool tied = false;
  int64_t kv_heads = 0;  // if the key is absent; 0: heads
  int64_t head_dim = 0;  // likewise; 0: hidden / heads
  AttentionBias attention_bias = AttentionBias::all;
  bool usual_attention_bias = false;
  bool mlp_bias = false;  // has the key
  Windows windows = Windows::none;
  int64_t window = 0;   // if the key is absent; 0: none
  int64_t pattern = 0;  // listed: every so many layers, one has no window
  spec::NormPlacement norms = spec::NormPlacement::before;
  spec::QueryKeyNorm query_key_norm = spec::QueryKeyNorm::none;
  double rotated_share = 0;      // partial_rotary_factor if the key is absent; 0: no such key
  bool gemma = false;            // 1 + w, scaled embeddings, query_pre_attn_scalar, softcaps
  double attention_softcap = 0;  // if the keys are absent
  double logit_softcap = 0;
  bool window_rope = false;             // layers with a window have their own RoPE
  bool multipliers = false;             // Granite's
  bool unrotated = false;               // no_rope_layers
  bool routed = false;                  // a mixture of experts
  bool sinks = false;                   // of attention
  bool latent = false;                  // latent attention
  spec::RopeScaling rope_scaling = {};  // if no key has one
};

const DenseType* find_dense_type(HfFamily family);  // null: another family

// Kinds of layers in "layer_types" and "rope_parameters".
inline constexpr const char* kFullAttention = "full_attention";
inline constexpr const char* kSlidingAttention = "sliding_attention";

}  // namespace tutti::checkpoint
