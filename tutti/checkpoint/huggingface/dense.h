// config.json of the model types that are built like Llama (dense_types.h), out of the parts of
// spec::ModelConfig (config.h): which keys each type has, and what it takes where one is absent.
#pragma once

#include <string_view>

#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/keys.h"

namespace tutti::checkpoint {

bool is_dense_family(HfFamily family);  // mistral, qwen2 and those after it

// Everything but initializer_range and head sizes, which all types share.
void read_dense(HfKeys& keys, const Json& config, std::string_view path, HfModel& out);

// head_dim where the key is absent; 0: hidden / heads.
int64_t usual_head_dim(HfFamily family);

// What read_dense and the shared keys read. Not everything a model may have is in a type: reading
// it again tells.
void write_dense(const spec::ModelConfig& model, HfFamily family, Json& config);

}  // namespace tutti::checkpoint
