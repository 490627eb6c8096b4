// Whether a mesh divides a model and its batch (validate of spec/recipe/recipe.h).
#pragma once

#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

// Of a resolved recipe whose sizes are in range (spec/recipe/sizes.h). Throw usage naming the first
// impossible combination and the nearest value that would do.
void validate_batch(const Recipe& recipe);
void validate_mesh(const Recipe& recipe);

}  // namespace tutti::spec
