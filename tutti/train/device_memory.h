// The memory of accelerators that a recipe is planned for. It decides how many rows of logits a
// rank handles at once (spec::tutti_profile_on).
#pragma once

#include <cstdint>

#include "tutti/spec/recipe.h"

namespace tutti::train {

// The most ranks that share one of `devices`, of `ranks_here` ranks on their host; at least 1.
int64_t ranks_per_device(int64_t ranks_here, int64_t devices);

// A rank's share of all memory of the accelerator that it computes on, as the recipe's backend
// numbers them; 0 on a CPU, and where there is none.
int64_t device_memory_bytes(const spec::Recipe& recipe, int device = 0, int64_t ranks_here = 1);

}  // namespace tutti::train
