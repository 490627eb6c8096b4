// The model types of transformers that Tutti supports, shared by the reader and the writer of
// config.json (config.h).
#pragma once

#include <utility>
#include <vector>

#include "tutti/checkpoint/huggingface/config.h"

namespace tutti::checkpoint {

// Names of a mixture of experts within a layer: "MODULE.ROUTER.weight" and
// "MODULE.experts.7.GATE.weight"; if stacked, "MODULE.experts.GATE" of all experts, with gate and
// up in one tensor.
struct HfExpertNames {
  const char* module = "mlp";
  const char* router = "gate";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  bool stacked = false;
  const char* shared = "shared_experts";  // "MODULE.SHARED.gate_proj"
  const char* selection_bias = nullptr;   // "MODULE.ROUTER.BIAS", where that is not "bias"
};

struct HfFamilyNames {
  HfFamily family;
  const char* name;                        // "model_type"
  std::vector<const char*> architectures;  // the first is what export writes
  // Differences between the files of dense families and Llama's.
  bool fused_qkv = false;      // self_attn.qkv_proj: rows of queries, keys, values
  bool fused_gate_up = false;  // mlp.gate_up_proj
  bool interleaved = false;    // RoPE pairs neighbours 2i and 2i + 1 (store/row_order.h)
  // Names of norms, by ours: norm1, attention.branch_norm, norm2, mlp.branch_norm.
  std::vector<std::pair<const char*, const char*>> norms = {{"norm1", "input_layernorm"},
                                                            {"norm2", "post_attention_layernorm"}};
  HfExpertNames experts = {};
};

const std::vector<HfFamilyNames>& hf_families();
const HfFamilyNames& hf_family_names(HfFamily family);

// Keys that do not affect the arithmetic of training: names, ids of special tokens, switches of the
// reference implementation, settings of generation. An export keeps them.
const std::vector<const char*>& hf_neutral_keys();

}  // namespace tutti::checkpoint
