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
  const std::string text = layers == kEveryLayer ? "all" : fmt::format("{}", layers);
  const Mesh& mesh = recipe.parallel;
  if (mesh.pp > 1) {
    fail(ErrorKind::usage,
         "offload.activations: {} with parallel.pp: {}, where several micro-batches are under way; "
         "write 0, or use recompute",
         text, mesh.pp);
  }
  // Each layer has one place on the host.
  const int64_t micro_batches = recipe.batch.global / (recipe.batch.micro * mesh.dp);
  if (mesh.pipeline == Pipeline::gpipe && micro_batches > 1) {
    fail(ErrorKind::usage,
         "offload.activations: {} with parallel.schedule: gpipe, where all {} micro-batches are "
         "under way at once; write parallel.schedule: 1f1b, or 0",
         text, micro_batches);
  }
  if (layers > recipe.model.layers) {
    fail(ErrorKind::usage, "offload.activations: {} exceeds model.layers {}; write all", layers,
         recipe.model.layers);
  }
}

}  // namespace tutti::spec
