// What of all that can be described this build can also train (recipe.h, check_executable).
#include "tutti/base/error.h"
#include "tutti/spec/narrow.h"
#include "tutti/spec/recipe.h"
#include "tutti/spec/recipe_names.h"

namespace tutti::spec {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  fail(ErrorKind::unsupported, "{}; it can be described and planned, but not executed yet",
       message);
}

void check_pipeline(const Recipe& recipe) {
  const Mesh& mesh = recipe.parallel;
  if (mesh.pp == 1) return;
  if (mesh.pipeline == Pipeline::zero_bubble && recipe.recompute.mode != RecomputeMode::none) {
    refuse(
        "parallel.schedule: zero-bubble with recompute, whose delayed weight gradients would need "
        "again what was dropped");
  }
}

void check_experts(const Recipe& recipe) {
  const Mesh& mesh = recipe.parallel;
  if (recipe.model.moe.experts > 0 && mesh.tp > 1) {
    refuse(fmt::format("parallel.tp: {} with {} experts", mesh.tp, recipe.model.moe.experts));
  }
  if (recipe.lora.enabled() && recipe.model.moe.experts > 0) {
    refuse(fmt::format("lora: adapters beside {} experts", recipe.model.moe.experts));
  }
}

void check_zero(const Mesh& mesh) {
  if (mesh.zero != 0 && replicas(mesh) == 1) {
    refuse(fmt::format("parallel.zero: {} shards nothing on one rank; write 0", mesh.zero));
  }
}

void check_distillation(const Recipe& recipe) {
  if (!recipe.distill.enabled()) return;
  if (recipe.parallel.world() > 1) {
    refuse(fmt::format("parallel: {} ranks learning from a teacher", recipe.parallel.world()));
  }
  if (!recipe.distill.model) return;
  if (recipe.distill.model->attention == Attention::latent) {
    refuse("distill.model.attention: latent");
  }
  if (recipe.distill.model->prediction_layers > 0) {
    refuse(fmt::format("distill.model.prediction_layers: {}",
                       recipe.distill.model->prediction_layers));
  }
}

void check_model(const ModelConfig& model) {
  if (model.attention == Attention::latent) refuse("model.attention: latent");
  if (model.prediction_layers > 0) {
    refuse(fmt::format("model.prediction_layers: {}", model.prediction_layers));
  }
}

}  // namespace

void check_executable(const Recipe& recipe, int64_t ranks) {
  const Mesh& mesh = recipe.parallel;
  check_pipeline(recipe);
  check_experts(recipe);
  check_zero(mesh);
  if (mesh.world() != ranks) {
    fail(ErrorKind::usage,
         "parallel: a mesh of {} ranks on {} here; start as many (tutti train --nproc {}, mpirun, "
         "srun, torchrun), or write parallel.dp=1",
         mesh.world(), ranks, mesh.world());
  }
  check_distillation(recipe);
  check_model(recipe.model);
  if (is_narrow(recipe.precision)) {
    refuse(fmt::format("precision: {}; this build trains in f32 and bf16",
                       name_of(kPrecisionNames, recipe.precision)));
  }
  if (recipe.device != "cpu") refuse(fmt::format("device: {}", recipe.device));
}

}  // namespace tutti::spec
