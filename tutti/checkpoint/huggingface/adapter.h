// Low-rank adapters on their way out: merged into the weights that they correct, or as a folder
// that Hugging Face's PEFT loads beside the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/spec/model/params.h"

namespace tutti::checkpoint {

// W += (alpha / rank) B A for every adapter of `layout`, over the flat f32 parameters
// [layout.elements]. Products are summed in f32 and added once. Adapters are left as they are.
void merge_adapters(const spec::ParamLayout& layout, const spec::ModelConfig& model, float* flat);

// The parameters of `layout` without adapters: flat f32 [elements of param_table(model)].
std::vector<float> without_adapters(const spec::ParamLayout& layout, const spec::ModelConfig& model,
                                    const float* flat);

struct ExportedAdapter {
  int64_t tensors = 0;
  int64_t bytes = 0;
  Json config;
};

// Writes adapter_model.safetensors (f32) and adapter_config.json as PEFT 0.12 does for the model's
// class in transformers (gpt2, llama, mistral). `base` is base_model_name_or_path.
//
// PEFT adapts modules. Where transformers has several for one of our adapters (qkv of Llama), each
// gets the whole A and its rows of B; where it has one for several (query and value of GPT-2's
// c_attn), that one gets all of their A, below one another, and their B in blocks, with a rank and
// an alpha of as many times (rank_pattern, alpha_pattern): the same function, exactly. Our rotation
// pairs the same elements as transformers', so no row moves.
// Throws unsupported for a model that transformers does not have.
ExportedAdapter export_adapter(FileSystem& files, const spec::ParamLayout& layout,
                               const spec::ModelConfig& model, const float* flat,
                               const std::string& base, const std::string& folder);

}  // namespace tutti::checkpoint
