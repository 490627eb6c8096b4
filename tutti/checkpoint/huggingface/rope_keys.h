// RoPE keys of config.json: objects "rope_scaling" and "rope_parameters", and the rotated share of
// a head.
#pragma once

#include <string>
#include <string_view>

#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/config.h"

namespace tutti::checkpoint {

// Reads an object "rope_scaling", "rope_parameters" or one within it into theta and scaling.
// `share` becomes its partial_rotary_factor; null: only 1 is accepted.
void read_rope(const Json& object, std::string_view path, const std::string& name, double& theta,
               double* share, HfModel& out);

Json rope_scaling_object(const spec::RopeScaling& scaling);  // for the key "rope_scaling"

// Rotated columns of a head: int(head_dim * partial_rotary_factor), as in transformers. 0 for an
// invalid share: it must be above 0 and at most 1.
int64_t dims_of_share(double head_dim, double share);

// The share whose product with head_dim truncates to rotated_dims.
double rotated_share(const spec::ModelConfig& model);

// Several shares give the same number of rotated columns: keeps that of `original`, if it does.
void keep_rotated_share(const spec::ModelConfig& model, const Json& original, Json& config);

}  // namespace tutti::checkpoint
