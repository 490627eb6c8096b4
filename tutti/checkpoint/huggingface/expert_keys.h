// Keys of config.json that describe a mixture of experts, for the types of dense_types.h that have
// one: number of experts, layers, and the router's weighting. As in config.h, errors name what
// Tutti cannot compute.
#pragma once

#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/keys.h"

namespace tutti::checkpoint {

// Must follow the sizes of `model`: its ffn is intermediate_size.
void read_experts(HfKeys& keys, const Json& config, HfFamily family, spec::ModelConfig& model);

// Must follow write_dense, which writes intermediate_size.
void write_experts(const spec::ModelConfig& model, HfFamily family, Json& config);

}  // namespace tutti::checkpoint
