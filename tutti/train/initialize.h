// Fresh parameters: a pure function of (seed, name, global element), so every layout of ranks
// starts from the same model.
#pragma once

#include <cstdint>

#include "tutti/spec/params.h"

namespace tutti::train {

// Fills the flat parameters [layout.elements] f32: normals, ones and zeros as the table says, zero
// in all padding.
void initialize_parameters(const spec::ParamLayout& layout, uint64_t seed, float* flat);

}  // namespace tutti::train
