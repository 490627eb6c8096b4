#include "tutti/spec/program/recompute.h"

#include <fmt/format.h>

#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::spec {

std::string recompute_text(const Recompute& recompute) {
  std::string text = name_of(kRecomputeNames, recompute.mode);
  if (recompute.mode == RecomputeMode::none) return text;
  if (recompute.mode == RecomputeMode::selective) {
    text += fmt::format(" ({})", part_names(repeated_parts(tutti_profile(), recompute), ", "));
  }
  if (recompute.layers > 0) text += fmt::format(", first {} layers", recompute.layers);
  return text;
}

}  // namespace tutti::spec
