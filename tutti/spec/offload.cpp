#include "tutti/spec/offload.h"

#include <fmt/format.h>

#include "tutti/base/error.h"
#include "tutti/spec/recipe.h"

namespace tutti::spec {

std::string offload_text(const Offload& offload) {
  std::string text = offload.optimizer ? "optimizer" : "";
  if (offload.activations != 0) {
    if (!text.empty()) text += ", ";
    text += offload.activations == kEveryLayer
                ? "activations"
                : fmt::format("activations of the first {} layers", offload.activations);
  }
  return text.empty() ? "none" : text;
}

void validate_offload(const Recipe& recipe) {
  const int64_t layers = recipe.offload.activations;
  if (layers == 0) return;
  if (recipe.parallel.pp > 1) {
    fail(ErrorKind::usage,
         "offload.activations: {} with parallel.pp: {}, where several micro-batches are under way; "
         "write 0, or use recompute",
         layers == kEveryLayer ? "all" : fmt::format("{}", layers), recipe.parallel.pp);
  }
  if (layers > recipe.model.layers) {
    fail(ErrorKind::usage, "offload.activations: {} exceeds model.layers {}; write all", layers,
         recipe.model.layers);
  }
}

}  // namespace tutti::spec
