// Upper bounds of recipe sizes: far above any real recipe, and low enough to catch an extra digit
// before int64 overflow.
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
