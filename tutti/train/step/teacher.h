// The teacher of a run (spec/recipe/distill.h): found, compared with the run, and read.
#pragma once

#include <optional>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

// Fills in recipe.distill.model from the recipe of the teacher's run, so that the run can be
// described, and validates both together. Does nothing without a teacher, or when the recipe says
// its model. Errors name distill.teacher: not_found when there is no such run, usage when its
// vocabulary or context does not fit.
void resolve_teacher(FileSystem& files, spec::Recipe& recipe);

struct LoadedTeacher {
  checkpoint::Teacher record;
  std::vector<float> master;  // flat f32, in the layout of recipe.distill.model
};

// Reads the teacher of a resolved recipe: when resuming, the checkpoint in `recorded`, at its path
// or where distill.teacher says; otherwise the one that distill.teacher names, of a run its newest
// valid. Adapters are merged into what is below them. Throws as load_run, corrupt when what is
// there is not the recorded checkpoint, and usage when its model is not distill.model or its
// tokenizer not that of the training corpora. (Where either side has no tokenizer, the size of the
// vocabulary is all that can be compared.)
LoadedTeacher load_teacher(FileSystem& files, const spec::Recipe& recipe,
                           const std::optional<checkpoint::Teacher>& recorded);

// What load_teacher would throw at the start of a new run, without reading a parameter.
void check_teacher(FileSystem& files, const spec::Recipe& recipe);

}  // namespace tutti::train
