// Whether a run fits into the memory there is, known before anything is allocated: what takes how
// much, and which settings would make it fit without changing what is learned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

// The map of the fullest rank, profile tutti on the recipe's device. Here and below `device_bytes`
// is all of an accelerator's memory, which decides how many logits lie in it (tutti_profile_on).
MemoryMap fullest_memory_map(const Recipe& recipe, int64_t device_bytes = 0);

struct MemoryUse {
  std::string name;  // of an arena
  std::string what;  // for people
  int64_t bytes = 0;
  bool on_host = false;  // and so not of the accelerator's memory
};
// Its arenas, the largest first.
std::vector<MemoryUse> memory_uses(const Recipe& recipe, int64_t device_bytes = 0);

// Keys to change ("recompute=full") and what the fullest rank then holds.
struct MemoryChange {
  std::vector<std::string> settings;
  int64_t bytes = 0;
  int64_t host_bytes = 0;  // beside them, in memory of the host (spec/recipe/offload.h)
};
// Which of recompute, batch.micro (with batch.global as it is), on accelerators offload and, where
// there are replicas, parallel.zero make a rank hold at most `most_bytes`: the settings that cost
// least time first, no more than `count` of them, none that contains another one. What such a
// recipe computes is the same but for the order of sums. Empty where nothing does; `smallest`, when
// given, receives the one that needs least. A recipe that check_executable refuses is not proposed.
std::vector<MemoryChange> changes_that_fit(const Recipe& recipe, int64_t most_bytes, size_t count,
                                           MemoryChange* smallest = nullptr,
                                           int64_t device_bytes = 0);

}  // namespace tutti::spec
