// The memory of accelerators that a recipe is planned for. It decides how many rows of logits a
// rank handles at once (spec::tutti_profile_on).
#pragma once

#include <cstdint>

#include "tutti/spec/recipe.h"

namespace tutti::train {

// All memory of the accelerator that a rank computes on, as the recipe's backend numbers them; 0
// on a CPU, and where there is none.
int64_t device_memory_bytes(const spec::Recipe& recipe, int device = 0);

}  // namespace tutti::train
