// What config.json says of the rotation: objects "rope_scaling" and "rope_parameters", and the
// share of a head that rotates.
#pragma once

#include <string>
#include <string_view>

#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/config.h"

namespace tutti::checkpoint {

// Of an object "rope_scaling", "rope_parameters" or one within it, into theta and scaling. `share`
// becomes its partial_rotary_factor; null: only 1 is accepted.
void read_rope(const Json& object, std::string_view path, const std::string& name, double& theta,
               double* share, HfModel& out);

Json rope_scaling_object(const spec::RopeScaling& scaling);  // for the key "rope_scaling"

// Columns of a head that rotate: int(head_dim * partial_rotary_factor), as transformers counts. 0
// of what is no share, which is above 0 and at most 1.
int64_t dims_of_share(double head_dim, double share);

// The share whose product with head_dim is cut off to rotated_dims.
double rotated_share(const spec::ModelConfig& model);

// Several shares of a head rotate as many of its columns: that of `original`, if it does.
void keep_rotated_share(const spec::ModelConfig& model, const Json& original, Json& config);

}  // namespace tutti::checkpoint
