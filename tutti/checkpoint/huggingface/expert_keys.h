// Keys of config.json that describe a mixture of experts, of the types of dense_types.h that have
// one: how many experts, which layers, and how a router weighs what it chooses. As in config.h
// what Tutti cannot compute is refused by name.
#pragma once

#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/keys.h"

namespace tutti::checkpoint {

// After the sizes of `model` are read: its ffn is intermediate_size.
void read_experts(HfKeys& keys, const Json& config, HfFamily family, spec::ModelConfig& model);

// After write_dense wrote intermediate_size.
void write_experts(const spec::ModelConfig& model, HfFamily family, Json& config);

}  // namespace tutti::checkpoint
