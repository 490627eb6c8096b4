"""Small models of transformers with random weights, and what they compute."""

import torch
import transformers

SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMA = {
    "vocab_size": 131,
    "hidden_size": 96,
    "intermediate_size": 136,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 3,
    "eos_token_id": 7,
}
LLAMA31 = {
    **LLAMA,
    "num_key_value_heads": 2,
    "rope_theta": 500000.0,
    "rope_scaling": SCALING,
}
GPT2 = {
    "vocab_size": 113,
    "n_positions": 80,
    "n_embd": 60,
    "n_layer": 3,
    "n_head": 5,
    "bos_token_id": 3,
    "eos_token_id": 7,
}
MIXTRAL = {
    **LLAMA,
    "num_key_value_heads": 3,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}

# name: (configuration class, its keys)
CONFIGS = {
    "gpt2": (transformers.GPT2Config, GPT2),
    "gpt2-untied": (transformers.GPT2Config, {**GPT2, "tie_word_embeddings": False}),
    "llama2": (transformers.LlamaConfig, LLAMA),
    "llama3.1": (transformers.LlamaConfig, LLAMA31),
    "llama3.2-tied": (transformers.LlamaConfig, {**LLAMA31, "tie_word_embeddings": True}),
    "llama-biases": (transformers.LlamaConfig, {**LLAMA, "attention_bias": True, "mlp_bias": True}),
    "mistral": (transformers.MistralConfig,
                {**LLAMA, "num_key_value_heads": 2, "sliding_window": None}),
    "mixtral": (transformers.MixtralConfig, MIXTRAL),
}


def build(name, seed=1):
    """A model whose weights are larger than an initialisation, so that every part shows."""
    kind, keys = CONFIGS[name]
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(kind(**keys)).eval()
    with torch.no_grad():
        for tensor_name, tensor in model.named_parameters():
            if tensor.ndim == 1:
                offset = 0 if tensor_name.endswith("bias") else 1
                tensor.copy_(offset + 0.2 * torch.randn_like(tensor))
            else:
                tensor.copy_(tensor.shape[-1] ** -0.5 * 1.5 * torch.randn_like(tensor))
    return model


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits.float()


def relative_error(found, expected):
    return float((found - expected).norm() / expected.norm())


def divergence(found, expected):
    """Largest KL divergence of a row, in nats."""
    p, q = expected.double().log_softmax(-1), found.double().log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).max())
