// The memory of accelerators that a recipe is planned for. It decides how many rows of logits a
// rank handles at once (spec::tutti_profile_on), hence how often tensor parallel ranks exchange
// what they know of them: all ranks plan for the same.
#pragma once

#include <cstdint>

#include "tutti/comm/group.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

// The most ranks that share one of `devices`, of `ranks_here` ranks on their host; at least 1.
int64_t ranks_per_device(int64_t ranks_here, int64_t devices);

// A rank's share of all memory of the accelerator that it computes on, as the recipe's backend
// numbers them; 0 on a CPU, and where there is none.
int64_t device_memory_bytes(const spec::Recipe& recipe, int device = 0, int64_t ranks_here = 1);

// The least of what the ranks of `world` have; null: alone. Collective but on a CPU (0 bytes),
// where all ranks are.
int64_t least_device_bytes(int64_t own_bytes, comm::Group* world);

}  // namespace tutti::train
