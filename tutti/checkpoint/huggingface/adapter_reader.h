// Low-rank adapters that Hugging Face's PEFT saved (adapter_config.json and
// adapter_model.safetensors), as `tutti checkpoint export-adapter` writes them too.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/model/low_rank.h"

namespace tutti::checkpoint {

inline constexpr const char* kPeftConfig = "adapter_config.json";
inline constexpr const char* kPeftWeights = "adapter_model.safetensors";

// The adapters in `folder` for a model of `family`, each module of transformers as a term over its
// rows of our projection. Throws not_found for a missing file, corrupt for damaged weights, usage
// for shapes that are not the model's and halves of a pair without the other, unsupported naming
// the key for what is no plain LoRA (DoRA, trained biases or whole modules) and for modules that
// are not projections of attention and MLP.
std::vector<spec::LowRankTerm> read_peft(FileSystem& files, const std::string& folder,
                                         const spec::ModelConfig& model, HfFamily family);

}  // namespace tutti::checkpoint
