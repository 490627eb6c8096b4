// Refuses, before the first step, a run that cannot fit into the memory where it computes.
#pragma once

#include <cstdint>

#include "tutti/engine/backend.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

// Throws unsupported when `ranks_here` ranks of the recipe need more arenas than this machine has
// memory, or a rank more than its device has free (`device`, as the backend numbers them), with
// what takes how much of it and the settings that would make it fit; otherwise the kernel would
// kill the process some time later without a word. Also when the recipe's device is missing. A
// launcher, which does not compute, passes kNoDevice.
void check_memory(const spec::Recipe& recipe, int64_t ranks_here = 1, int device = 0);

// What the first device has in all: asking what is free takes a device into use, which costs memory
// of it for as long as this process lives, and keeps others out where devices serve one process.
inline constexpr int kNoDevice = -1;
int64_t device_room_bytes(const engine::Backend& backend, int device);

}  // namespace tutti::cli
