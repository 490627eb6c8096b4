// config.json of the Llama-like model types (dense_types.h), from the parts of spec::ModelConfig
// (config.h): the keys of each type, and the defaults of absent keys.
#pragma once

#include <string_view>

#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/keys.h"

namespace tutti::checkpoint {

bool is_dense_family(HfFamily family);  // mistral, qwen2 and those after it

// Reads everything except initializer_range and head sizes, which all types share.
void read_dense(HfKeys& keys, const Json& config, std::string_view path, HfModel& out);

// head_dim if the key is absent; 0: hidden / heads.
int64_t usual_head_dim(HfFamily family);

// Writes the keys that read_dense and the shared reader read. A type may not express all of a
// model: reading the result again shows whether it does.
void write_dense(const spec::ModelConfig& model, HfFamily family, Json& config);

}  // namespace tutti::checkpoint
