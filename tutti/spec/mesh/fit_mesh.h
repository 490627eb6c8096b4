// Fits the mesh of a recipe to a number of ranks: tp, pp and cp from the recipe, the rest is data
// parallel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

// Sets parallel.dp of a resolved recipe to ranks / (tp * pp * cp), and what depends on it:
// batch.micro becomes the largest number of sequences up to what it was that divides those of a
// rank, and parallel.zero 0 where a rank has no replica. Returns what was changed, for people
// ("dp 4 (from --nproc)"); `origin` is where the number of ranks comes from. Throws usage, naming
// the nearest layouts that would do, when there is none, or unsupported when this build cannot
// execute it.
std::vector<std::string> fit_mesh(Recipe& recipe, int64_t ranks, const std::string& origin);

// Whether fit_mesh would succeed.
bool fits(const Recipe& recipe, int64_t ranks);

// "dp 4", "dp 2 tp 2 pp 3 vpp 2 zero 1": what is not 1 (zero: 0), dp in any case.
std::string mesh_text(const Mesh& mesh);

}  // namespace tutti::spec
