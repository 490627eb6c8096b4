// A run with adapters as one without: the base with the adapters merged into it.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/writer.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::train {

// The recipe of `run` without adapters, base and teacher.
spec::Recipe merged_recipe(const LoadedRun& run);

// Merges the adapters and writes the parameters (f32, no optimizer state) as a step folder in
// `checkpoints`. Uses up run.master.
checkpoint::Written write_merged(FileSystem& files, LoadedRun& run, const std::string& checkpoints);

}  // namespace tutti::train
