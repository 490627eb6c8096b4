// Knowledge distillation (Hinton et al. 2015): a frozen teacher's predictions as part of the loss,
//   (1 - weight) * cross-entropy + weight * T^2 KL(p_T(teacher) || p_T(student)),
// p_T = softmax(logits / T), mean over the targets that are not ignored. The teacher reads the same
// tokens, in the run's compute type (16 bits below them) and without dropout; it may have another
// architecture and size, but the same vocabulary. On a mesh every rank holds all of it.
#pragma once

#include <optional>
#include <string>

#include "tutti/spec/model/config.h"

namespace tutti::spec {

struct Recipe;

struct DistillConfig {
  bool operator==(const DistillConfig&) const = default;
  std::string teacher;     // a run, an import or one of its checkpoints; empty: no distillation
  double temperature = 1;  // T
  double weight = 0.5;
  // The teacher's: what the description needs to know of it. Absent, the trainer takes it from the
  // teacher's run before anything is described.
  std::optional<ModelConfig> model;

  bool enabled() const { return !teacher.empty(); }
};

// Throws usage naming the first impossible value of `recipe.distill` or combination with the rest.
void validate_distill(const Recipe& recipe);

// The teacher as a recipe of its own: its model over the micro-batches and on the mesh of `recipe`,
// everything recomputed so that one layer at work holds all activations. There must be a teacher;
// throws usage when its model is unknown.
Recipe teacher_recipe(const Recipe& recipe);

// "teacher.": what names of the teacher's arenas and kinds of layers begin with.
inline constexpr const char* kTeacherPrefix = "teacher.";

}  // namespace tutti::spec
