#include "tutti/spec/recipe/distill.h"

#include "tutti/base/error.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {
namespace {

void validate_teacher_model(const Recipe& recipe) {
  const ModelConfig& teacher = *recipe.distill.model;
  try {
    validate(teacher);
  } catch (const Error& error) {
    fail(error.kind(), "distill.{}", error.what());
  }
  if (teacher.vocabulary != recipe.model.vocabulary) {
    fail(ErrorKind::usage,
         "distill.teacher: '{}' predicts a vocabulary of {}, and model.vocabulary is {}: the two "
         "must be the same tokens; take a teacher with this run's tokenizer, or set "
         "model.vocabulary={} and train on a corpus prepared with the teacher's",
         recipe.distill.teacher, teacher.vocabulary, recipe.model.vocabulary, teacher.vocabulary);
  }
  if (recipe.batch.sequence > teacher.context) {
    fail(ErrorKind::usage,
         "distill.teacher: '{}' reads up to {} tokens (its model.context), and batch.sequence is "
         "{}; set batch.sequence={} or take another teacher",
         recipe.distill.teacher, teacher.context, recipe.batch.sequence, teacher.context);
  }
}

}  // namespace

void validate_distill(const Recipe& recipe) {
  const DistillConfig& distill = recipe.distill;
  if (!distill.enabled()) {
    if (distill != DistillConfig{}) {
      fail(ErrorKind::usage,
           "distill.teacher: missing, but other keys of distill are set; give a run or checkpoint "
           "to learn from, or drop them");
    }
    return;
  }
  if (!(distill.temperature >= 1e-3 && distill.temperature <= 1e3)) {
    fail(ErrorKind::usage, "distill.temperature: {} is out of range; accepted: 0.001 to 1000",
         distill.temperature);
  }
  if (!(distill.weight >= 0 && distill.weight <= 1)) {
    fail(ErrorKind::usage,
         "distill.weight: {} is out of range; accepted: 0 (cross-entropy only) to 1 (teacher only)",
         distill.weight);
  }
  if (recipe.model.prediction_layers > 0) {
    fail(ErrorKind::usage,
         "distill: model.prediction_layers {} predict what no teacher does; set "
         "model.prediction_layers=0",
         recipe.model.prediction_layers);
  }
  const Mesh& mesh = recipe.parallel;
  if (mesh.world() != mesh.dp || mesh.ep > 1) {
    fail(ErrorKind::usage,
         "distill: a teacher is whole on every rank, and parallel has tp {}, pp {}, cp {}, ep {}; "
         "write 1 for these (parallel.dp is free)",
         mesh.tp, mesh.pp, mesh.cp, mesh.ep);
  }
  if (distill.model) validate_teacher_model(recipe);
}

Recipe teacher_recipe(const Recipe& recipe) {
  if (!recipe.distill.model) {
    fail(ErrorKind::usage,
         "distill.model: missing, and without it the teacher's size is not known here; write "
         "distill.model=PRESET or the path of a model.yaml (training takes it from the teacher's "
         "run)");
  }
  Recipe teacher = recipe;
  teacher.model = *recipe.distill.model;
  teacher.distill = {};
  teacher.lora = {};
  if (is_narrow(teacher.precision)) teacher.precision = Precision::bf16;
  teacher.narrow = {};
  teacher.recompute = {RecomputeMode::full, 0, 0};
  teacher.offload = {};
  teacher.parallel.zero = 0;
  return teacher;
}

}  // namespace tutti::spec
