#include "tutti/spec/recipe/offload.h"

#include <fmt/format.h>

#include "tutti/base/error.h"
#include "tutti/spec/recipe/recipe.h"

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
  const int64_t most = stage_layers(recipe.parallel, recipe.model.layers, 0).count;
  if (layers > most) {
    fail(ErrorKind::usage, "offload.activations: {} exceeds the {} layers of a stage; write all",
         layers, most);
  }
}

}  // namespace tutti::spec
