// Copies parameters into a model that only reads them.
#pragma once

#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"

namespace tutti::train {

// Fills the arena "weights" of `memory` from flat f32 parameters in the same layout, rounded to its
// element type.
void place_weights(engine::Stream& stream, const model::Memory& memory, const float* master);

}  // namespace tutti::train
