#include "tutti/spec/recompute.h"

#include <fmt/format.h>

#include "tutti/spec/recipe_names.h"

namespace tutti::spec {

std::string describe_recompute(const Recompute& recompute, Parts default_parts) {
  std::string text = name_of(kRecomputeNames, recompute.mode);
  if (recompute.mode == RecomputeMode::none) return text;
  if (recompute.mode == RecomputeMode::selective) {
    text += fmt::format(" ({})",
                        part_names(recompute.parts != 0 ? recompute.parts : default_parts, ", "));
  }
  if (recompute.layers > 0) text += fmt::format(", first {} layers", recompute.layers);
  return text;
}

}  // namespace tutti::spec
