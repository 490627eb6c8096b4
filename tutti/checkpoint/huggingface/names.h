// Maps each parameter of Tutti to tensors of Hugging Face's transformers.
//
// Fused parameters are the rows of their parts, one part after another: attention.qkv is q, k, v;
// mlp.gate_up is gate, up; moe.experts.gate_up is gate, up of expert 0 (Mixtral's w1, w3), then of
// expert 1, and so on. So a parameter is always the concatenation of its parts' elements. If
// transformers fuses rows, too (Phi-3, GLM-4), they are one part. gpt-oss has all experts in one
// tensor [E, in, out], with alternating rows of gate and up. GPT-2 stores linear weights as [in,
// out] ("Conv1D"), and q, k, v fused; its parts are transposed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/spec/model/config.h"

namespace tutti::checkpoint {

struct HfPart {
  std::string name;
  std::vector<int64_t> shape;  // in the file of transformers
  bool transposed = false;     // ours is [shape[1], shape[0]]
  bool rotary = false;         // its rows are queries or keys of complete heads
  bool interleaved = false;    // with neighbouring pairs in every file of the family (GLM)
  int64_t rotated = 0;         // rows of a head that form pairs; 0: all
  bool rotated_last = false;   // these are the last of a head, ours the first (latent attention)
  int64_t head_rows = 0;       // of a head; 0: the model's head_dim
  bool stacked = false;        // all experts in one: [E, in, out], or [E, out] for biases
  bool alternating = false;    // outputs are gate 0, up 0, gate 1, ...; ours all gates first
};

struct HfParameter {
  std::string name;  // as in spec/model/params.h; empty: zeros in transformers, absent in Tutti
  std::vector<int64_t> shape;
  std::vector<HfPart> parts;
};

// Every parameter in forward order. `prefix` precedes all names except the head's: "model." or
// "transformer." as transformers saves language models (hf_prefix), "" for bare models. For gpt2
// models without biases, transformers' biases are parameters without a name: zeros.
std::vector<HfParameter> hf_parameters(const spec::ModelConfig& model, HfFamily family,
                                       std::string_view prefix);

std::string_view hf_prefix(HfFamily family);

// Names of tensors that are not parameters: masks and tables that older versions saved.
bool is_hf_buffer(std::string_view name);

// The first layer's embedding: "wte.weight" or "embed_tokens.weight", without a prefix.
std::string_view hf_embedding_name(HfFamily family);
inline constexpr std::string_view kHfHead = "lm_head.weight";

}  // namespace tutti::checkpoint
