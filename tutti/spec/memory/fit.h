// Whether a run fits into the available memory, known before anything is allocated: the memory of
// each arena, and settings that would make the run fit without changing its result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

// The memory map of the fullest rank, with profile tutti on the recipe's device. Here and below
// `device_bytes` is the total memory of an accelerator, which decides the size of the logits
// (tutti_profile_on).
MemoryMap fullest_memory_map(const Recipe& recipe, int64_t device_bytes = 0);

struct MemoryUse {
  std::string name;  // of an arena
  std::string what;  // for display
  int64_t bytes = 0;
  bool on_host = false;  // and so not in the accelerator's memory
};
// The arenas of that rank, the largest first.
std::vector<MemoryUse> memory_uses(const Recipe& recipe, int64_t device_bytes = 0);

// Settings to change ("recompute=full") and the memory of the fullest rank with them.
struct MemoryChange {
  std::vector<std::string> settings;
  int64_t bytes = 0;
  int64_t host_bytes = 0;  // in host memory, in addition (spec/recipe/offload.h)
};
// Which of recompute, batch.micro (with batch.global unchanged), on accelerators offload and, with
// replicas, parallel.zero make a rank hold at most `most_bytes`: the settings that cost least time
// first, at most `count` of them, none a superset of another. The recipe computes the same except
// for the order of sums. Empty if nothing fits; `smallest`, if given, receives the settings that
// need least memory. Recipes that check_executable refuses are not proposed.
std::vector<MemoryChange> changes_that_fit(const Recipe& recipe, int64_t most_bytes, size_t count,
                                           MemoryChange* smallest = nullptr,
                                           int64_t device_bytes = 0);

}  // namespace tutti::spec
