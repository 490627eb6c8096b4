// The class of the data that a job reads (control/jobs/data_rule.h), found in what it reads: its
// corpora, the checkpoints that it begins with, learns from or resumes, and its recipe.
#pragma once

#include <optional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/control/jobs/job.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

// The strictest class of all of them. `run_folder` may hold a run that is resumed; relative paths
// start in `folder` (empty: the current one). What cannot be read states no class.
control::DataLabel find_label(FileSystem& files, const spec::Recipe& recipe,
                              const std::string& run_folder, const std::string& folder);

// Of a job that is there, as its files are now; absent where it is not a training job, or its
// recipe is gone.
std::optional<control::DataLabel> label_of_job(FileSystem& files,
                                               const control::JobRequest& request);

// Key, path and remedy where a corpus of the recipe is missing, or the text that it would be made
// of; absent: all is there.
std::optional<std::string> missing_data(FileSystem& files, const spec::Recipe& recipe);

}  // namespace tutti::cli
