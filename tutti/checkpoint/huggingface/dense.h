// config.json of the dense model types that are built like Llama, out of the parts of
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

// Several shares of a head rotate as many of its columns: that of `original`, if it does.
void keep_rotated_share(const spec::ModelConfig& model, const Json& original, Json& config);

Json rope_scaling_object(const spec::RopeScaling& scaling);  // for the key "rope_scaling"

// Of an object "rope_scaling", "rope_parameters" or one within it, into theta and scaling.
void read_rope(const Json& object, std::string_view path, const std::string& name, double& theta,
               HfModel& out);

}  // namespace tutti::checkpoint
