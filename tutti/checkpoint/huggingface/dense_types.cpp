#include "tutti/checkpoint/huggingface/dense_types.h"

#include <vector>

namespace tutti::checkpoint {
namespace {

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
      {.family = HfFamily::qwen3_moe,
       .kv_heads = 4,
       .windows = Windows::used,
       .window = 4096,
       .query_key_norm = QueryKeyNorm::head,
       .routed = true},
      {.family = HfFamily::olmoe,
       .epsilon = 1e-5,
       .query_key_norm = QueryKeyNorm::whole,
       .routed = true},
      {.family = HfFamily::gpt_oss,
       .activation = Activation::clamped_swiglu,
       .epsilon = 1e-5,
       .rope_theta = 1.5e5,
       .kv_heads = 8,
       .head_dim = 64,
       .usual_attention_bias = true,
       .windows = Windows::listed,
       .window = 128,
       .pattern = 2,
       .routed = true,
       .sinks = true,
       .rope_scaling = {.factor = 32,
                        .original_context = 4096,
                        .kind = spec::RopeScalingKind::yarn,
                        .rounded = false}},
      {.family = HfFamily::deepseek_v2,
       .attention_bias = AttentionBias::none,
       .routed = true,
       .latent = true},
      {.family = HfFamily::deepseek_v3,
       .attention_bias = AttentionBias::none,
       .routed = true,
       .latent = true},
  };
  return types;
}

}  // namespace

const DenseType* find_dense_type(HfFamily family) {
  for (const DenseType& type : dense_types()) {
    if (type.family == family) return &type;
  }
  return nullptr;
}

}  // namespace tutti::checkpoint
