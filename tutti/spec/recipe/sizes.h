// The sizes of a recipe that numbers of 64 bits and lists of a step's passes hold: far above what
// anybody trains, below what a digit too many makes of it.
#pragma once

#include <cstdint>

#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

inline constexpr int64_t kMostRanks = int64_t{1} << 24;
inline constexpr int64_t kMostSequences = int64_t{1} << 24;   // of a step
inline constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;  // of a micro-batch: numbers are i32

// Of a resolved recipe with a valid model. Throws usage naming the first key that is out of range.
void check_sizes(const Recipe& recipe);

}  // namespace tutti::spec
