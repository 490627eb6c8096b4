"""Tiny models of today's families: their configurations, and weights that need no file.

Three shapes for each family, none of them round: widths that no vector divides, heads that are not
hidden / heads wide, windows shorter than a sequence. A weight is a function of its name and index,
so that a fixture holds only what transformers computed.
"""

import zlib

import numpy as np

BATCH, LENGTH, PROMPT, NEW = 2, 29, 6, 10

SMALL = {
    "vocab_size": 61, "hidden_size": 24, "intermediate_size": 28, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False,
}
# Another number of heads to each key head, and tied embeddings.
TIED = {
    **SMALL, "vocab_size": 73, "hidden_size": 36, "intermediate_size": 34, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": True,
}
# Every head has its own keys.
PLAIN = {
    **SMALL, "vocab_size": 67, "hidden_size": 28, "intermediate_size": 21, "num_hidden_layers": 4,
    "num_attention_heads": 2, "num_key_value_heads": 2,
}

# case: (configuration class of transformers, its keys)
CASES = {}


def family(name, kind, *variants):
    for index, (base, keys) in enumerate(variants):
        CASES[f"{name}-{index + 1}"] = (kind, {**base, **keys})


def rope(theta=10000.0, **keys):
    return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **keys}}


family("qwen2", "Qwen2Config",
       (SMALL, rope(1e6)),
       (TIED, rope()),
       (PLAIN, {**rope(), "use_sliding_window": True, "sliding_window": 7,
                "max_window_layers": 2}))
family("qwen3", "Qwen3Config",
       (SMALL, {**rope(1e6), "head_dim": 10}),
       (TIED, {**rope(), "head_dim": 6, "attention_bias": True}),
       (PLAIN, {**rope(), "head_dim": 16, "use_sliding_window": True, "sliding_window": 9,
                "max_window_layers": 1}))
family("mistral", "MistralConfig",
       (SMALL, {**rope(), "sliding_window": 5}),
       (TIED, {**rope(), "sliding_window": 64, "head_dim": 8}),
       (PLAIN, {**rope(1e6), "sliding_window": 1}))
family("gemma2", "Gemma2Config",
       (SMALL, {**rope(), "head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 12,
                "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
                "tie_word_embeddings": True}),
       (TIED, {**rope(), "head_dim": 6, "sliding_window": 11, "query_pre_attn_scalar": 6,
               "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
       (PLAIN, {**rope(), "head_dim": 20, "sliding_window": 64, "query_pre_attn_scalar": 5,
                "attn_logit_softcapping": None, "final_logit_softcapping": 1.5,
                "tie_word_embeddings": True}))
GEMMA3_ROPE = {"rope_parameters": {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}}}
family("gemma3", "Gemma3TextConfig",
       (SMALL, {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 12,
                "tie_word_embeddings": True, **GEMMA3_ROPE,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}),
       (TIED, {"head_dim": 6, "sliding_window": 11, "query_pre_attn_scalar": 6}),
       (PLAIN, {"head_dim": 20, "sliding_window": 3, "query_pre_attn_scalar": 5,
                "tie_word_embeddings": True, **GEMMA3_ROPE,
                "layer_types": ["full_attention", "sliding_attention"] * 2}))
family("phi3", "Phi3Config",
       (SMALL, rope(partial_rotary_factor=1.0)),
       (TIED, {**rope(partial_rotary_factor=0.7), "sliding_window": 8}),
       (PLAIN, rope(1e5, partial_rotary_factor=0.6)))
family("olmo2", "Olmo2Config",
       (SMALL, rope(5e5)),
       (TIED, {**rope(), "attention_bias": True}),
       (PLAIN, rope()))
family("smollm3", "SmolLM3Config",
       (SMALL, {**rope(2e6), "no_rope_layers": [1, 0, 1]}),
       (TIED, {**rope(), "no_rope_layer_interval": 2}),
       (PLAIN, {**rope(), "no_rope_layers": [1, 1, 1, 0], "attention_bias": True,
                "mlp_bias": True}))
family("granite", "GraniteConfig",
       (SMALL, {**rope(), "embedding_multiplier": 12.0, "logits_scaling": 8.0,
                "residual_multiplier": 0.22, "attention_multiplier": 0.3}),
       (TIED, {**rope(1e6), "embedding_multiplier": 3.0, "logits_scaling": 0.7,
               "residual_multiplier": 0.6, "attention_multiplier": 0.5}),
       (PLAIN, {**rope(), "embedding_multiplier": 0.5, "logits_scaling": 2.0,
                "residual_multiplier": 1.3, "attention_multiplier": 0.125,
                "attention_bias": True, "mlp_bias": True}))
family("glm4", "Glm4Config",
       (SMALL, {**rope(partial_rotary_factor=0.5), "head_dim": 12, "attention_bias": True}),
       (TIED, {**rope(partial_rotary_factor=1.0), "head_dim": 6, "attention_bias": False}),
       (PLAIN, {**rope(1e5, partial_rotary_factor=0.4), "head_dim": 20, "attention_bias": True}))
family("llama-yarn", "LlamaConfig",
       (SMALL, rope(1e4, rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
       (TIED, rope(1e4, rope_type="yarn", factor=2.5, original_max_position_embeddings=24,
                   beta_fast=8.0, beta_slow=0.5, attention_factor=1.7)),
       (PLAIN, rope(1e4, rope_type="linear", factor=3.0)))
# The third has layers without experts. With a loss that balances experts the gradients would be
# another matter.
ROUTED = {"router_aux_loss_coef": 0.0, "num_experts_per_tok": 2}
family("qwen3-moe", "Qwen3MoeConfig",
       (SMALL, {**rope(1e6), **ROUTED, "head_dim": 10, "num_experts": 5,
                "moe_intermediate_size": 9, "norm_topk_prob": True}),
       (TIED, {**rope(), **ROUTED, "head_dim": 6, "attention_bias": True, "num_experts": 4,
               "moe_intermediate_size": 8, "use_sliding_window": True, "sliding_window": 9}),
       (PLAIN, {**rope(), **ROUTED, "head_dim": 16, "num_experts": 3,
                "moe_intermediate_size": 11, "mlp_only_layers": [0, 1], "norm_topk_prob": True}))
family("olmoe", "OlmoeConfig",
       (SMALL, {**rope(), **ROUTED, "intermediate_size": 9, "num_experts": 6}),
       (TIED, {**rope(5e5), **ROUTED, "intermediate_size": 7, "num_experts": 4,
               "norm_topk_prob": True, "attention_bias": True}),
       (PLAIN, {**rope(), **ROUTED, "intermediate_size": 11, "num_experts": 5,
                "num_experts_per_tok": 3}))
# The third has widths that blocks of MXFP4 divide.
YARN = {"rope_type": "yarn", "truncate": False, "original_max_position_embeddings": 16}
family("gpt-oss", "GptOssConfig",
       (SMALL, {**rope(1.5e5, **YARN, factor=4.0, beta_fast=8.0), **ROUTED, "head_dim": 10,
                "intermediate_size": 10, "num_local_experts": 6, "sliding_window": 6}),
       (TIED, {**rope(), **ROUTED, "head_dim": 6, "attention_bias": False, "intermediate_size": 8,
               "num_local_experts": 4, "sliding_window": 9}),
       (PLAIN, {**rope(1e4, **YARN, factor=2.5, beta_slow=0.5), **ROUTED, "hidden_size": 32,
                "head_dim": 16, "intermediate_size": 32, "num_local_experts": 4,
                "num_experts_per_tok": 3, "sliding_window": 64,
                "layer_types": ["full_attention", "sliding_attention"] * 2}))

# Latent attention: values narrower and wider than keys, with and without compressed queries. Routers
# that choose within groups of experts; the third of each has no groups.
DEEPSEEK = {"num_key_value_heads": 4, "num_experts_per_tok": 3, "first_k_dense_replace": 1}
MSCALES = {"rope_type": "yarn", "original_max_position_embeddings": 16}
family("deepseek-v2", "DeepseekV2Config",
       (SMALL, {**rope(1e4, **MSCALES, factor=4.0, beta_fast=8.0, mscale=0.707,
                       mscale_all_dim=0.707), **DEEPSEEK,
                "q_lora_rank": 14, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
                "qk_rope_head_dim": 4, "v_head_dim": 9, "n_routed_experts": 12,
                "moe_intermediate_size": 8, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
                "topk_method": "group_limited_greedy", "routed_scaling_factor": 1.6}),
       (TIED, {**rope(), **DEEPSEEK, "num_key_value_heads": 6, "q_lora_rank": None,
               "kv_lora_rank": 12, "qk_nope_head_dim": 5, "qk_rope_head_dim": 2, "v_head_dim": 14,
               "n_routed_experts": 6, "moe_intermediate_size": 10, "n_shared_experts": 1,
               "rms_norm_eps": 1e-5}),
       (PLAIN, {**rope(1e5), **DEEPSEEK, "num_key_value_heads": 2, "first_k_dense_replace": 0,
                "q_lora_rank": 9, "kv_lora_rank": 7, "qk_nope_head_dim": 12,
                "qk_rope_head_dim": 6, "v_head_dim": 12, "n_routed_experts": 5,
                "moe_intermediate_size": 6, "n_shared_experts": 3}))
family("deepseek-v3", "DeepseekV3Config",
       (SMALL, {**rope(1e4, **MSCALES, factor=4.0, beta_slow=0.5, mscale=1.0, mscale_all_dim=1.0),
                **DEEPSEEK, "q_lora_rank": 14, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
                "qk_rope_head_dim": 4, "v_head_dim": 9, "n_routed_experts": 12,
                "moe_intermediate_size": 8, "n_shared_experts": 1, "n_group": 4, "topk_group": 2,
                "routed_scaling_factor": 2.5}),
       (TIED, {**rope(1e4, **MSCALES, factor=2.5, mscale_all_dim=0.5), **DEEPSEEK,
               "num_key_value_heads": 6, "q_lora_rank": None, "kv_lora_rank": 12,
               "qk_nope_head_dim": 5, "qk_rope_head_dim": 2, "v_head_dim": 14,
               "n_routed_experts": 8, "moe_intermediate_size": 10, "n_shared_experts": 2,
               "n_group": 2, "topk_group": 1, "norm_topk_prob": False,
               "routed_scaling_factor": 1.0, "rms_norm_eps": 1e-5}),
       (PLAIN, {**rope(1e5), **DEEPSEEK, "num_key_value_heads": 2, "first_k_dense_replace": 2,
                "q_lora_rank": 11, "kv_lora_rank": 9, "qk_nope_head_dim": 12,
                "qk_rope_head_dim": 6, "v_head_dim": 12, "n_routed_experts": 5,
                "moe_intermediate_size": 7, "n_shared_experts": 1, "n_group": 1,
                "topk_group": 1}))


def uniform(name, count):
    """Numbers in [-1, 1) that depend on the name and their index only: splitmix64."""
    with np.errstate(over="ignore"):
        x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(zlib.crc32(name.encode())) << np.uint64(20)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1


def weight(case, name, shape):
    """Larger than an initialisation, so that every part shows."""
    values = uniform(f"{case}/{name}", int(np.prod(shape))).reshape(shape)
    if len(shape) == 1:
        centre = 1 if "norm" in name and not case.startswith("gemma") else 0
        return (centre + 0.35 * values).astype(np.float32)
    size = 6.0 if case.startswith("gpt-oss") and "gate_up" in name else 2.4  # beyond its limits
    return (size * shape[-1] ** -0.5 * values).astype(np.float32)


def tokens(case, vocabulary):
    """Token ids [BATCH, LENGTH + 1] from 3 on: what follows each is its target."""
    values = uniform(f"{case}/tokens", BATCH * (LENGTH + 1)).reshape(BATCH, LENGTH + 1)
    return (3 + (values + 1) / 2 * (vocabulary - 3)).astype(np.int32)
