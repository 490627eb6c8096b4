// Fresh parameters: a pure function of (seed, name, global element), so every layout of ranks
// starts from the same model.
#pragma once

#include <cstdint>

#include "tutti/spec/model/params.h"

namespace tutti::train {

// Fills the shard of one parameter, placed.shard.count() f32: normals, uniforms, ones or zeros as
// the table says, zero in the padding of its rows.
void initialize_parameter(const spec::PlacedParam& placed, uint64_t seed, float* out);

}  // namespace tutti::train
