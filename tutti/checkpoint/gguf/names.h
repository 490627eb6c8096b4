// How the tensors of Hugging Face's transformers are called in GGUF files, and how they differ.
// Source: llama.cpp's gguf-py (constants, tensor_mapping) and its converter of transformers'
// models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::checkpoint {

enum class GgufArchitecture { gpt2, llama, qwen2, qwen3, gemma2, gemma3 };

const char* gguf_architecture_name(GgufArchitecture architecture);
// Of general.architecture; empty: another.
std::optional<GgufArchitecture> gguf_architecture_of(const std::string& name);
// Of "model_type" in config.json; empty: GGUF files of it are not written.
std::optional<GgufArchitecture> gguf_architecture_of_type(const std::string& model_type);
std::string gguf_architecture_names();  // for errors

// What a tensor of transformers is in a GGUF file.
struct GgufPart {
  std::string name;         // there
  bool transposed = false;  // [in, out] in transformers, [out, in] there (GPT-2)
  int64_t heads = 0;        // > 0: rows of so many heads, whose rotary pairs are neighbours there
  bool plus_one = false;    // a norm that is 1 + w in transformers, and so stored there (Gemma)
};

// `name` as transformers saves language models, such as model.layers.3.mlp.up_proj.weight. Empty:
// not a tensor of the architecture.
std::optional<GgufPart> gguf_part(GgufArchitecture architecture, const std::string& name,
                                  int64_t heads, int64_t kv_heads);

// All names in transformers that a model of so many layers may have.
std::vector<std::string> hf_names(GgufArchitecture architecture, int64_t layers);

}  // namespace tutti::checkpoint
