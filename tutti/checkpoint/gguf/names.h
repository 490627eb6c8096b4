// Names and forms of the tensors of Hugging Face's transformers in GGUF files. Source: llama.cpp's
// gguf-py (constants, tensor_mapping) and its converter of transformers' models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::checkpoint {

enum class GgufArchitecture { gpt2, llama, qwen2, qwen3, gemma2, gemma3 };

const char* gguf_architecture_name(GgufArchitecture architecture);
// By general.architecture; empty: an unknown one.
std::optional<GgufArchitecture> gguf_architecture_of(const std::string& name);
// By "model_type" in config.json; empty: no GGUF files are written for it.
std::optional<GgufArchitecture> gguf_architecture_of_type(const std::string& model_type);
std::string gguf_architecture_names();  // for errors

// The form of a tensor of transformers in a GGUF file.
struct GgufPart {
  std::string name;         // in the file
  bool transposed = false;  // [in, out] in transformers, [out, in] in the file (GPT-2)
  int64_t heads = 0;  // > 0: rows of this many heads, whose RoPE pairs are neighbours in the file
  bool plus_one = false;  // a norm stored as w in transformers and as 1 + w in the file (Gemma)
};

// `name` as transformers saves language models, such as model.layers.3.mlp.up_proj.weight. Empty if
// it is not a tensor of the architecture.
std::optional<GgufPart> gguf_part(GgufArchitecture architecture, const std::string& name,
                                  int64_t heads, int64_t kv_heads);

// All names that a model with `layers` layers can have in transformers.
std::vector<std::string> hf_names(GgufArchitecture architecture, int64_t layers);

}  // namespace tutti::checkpoint
