// Export of low-rank adapters: merged into the weights that they adapt, or as a folder that Hugging
// Face's PEFT loads with the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/spec/model/params.h"

namespace tutti::checkpoint {

// W += (alpha / rank) B A for every adapter of `layout`, over the flat f32 parameters
// [layout.elements]. Products are summed in f32 and added once. The adapters themselves are
// unchanged.
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
// PEFT adapts modules. If transformers has several modules for one of our adapters (qkv of Llama),
// each gets the whole A and its rows of B; if it has one module for several adapters (query and
// value of GPT-2's c_attn), that module gets their stacked A and their B in blocks, with rank and
// alpha multiplied by their number (rank_pattern, alpha_pattern): exactly the same function. Our
// RoPE pairs the same elements as transformers', so no row moves. Throws unsupported for a model
// that transformers does not have.
ExportedAdapter export_adapter(FileSystem& files, const spec::ParamLayout& layout,
                               const spec::ModelConfig& model, const float* flat,
                               const std::string& base, const std::string& folder);

}  // namespace tutti::checkpoint
