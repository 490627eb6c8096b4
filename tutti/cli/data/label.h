// The class of the data that a job reads (control/jobs/data_rule.h), found in what it reads: its
// corpora, the checkpoints that it begins with, learns from or resumes, and its recipe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/control/jobs/job.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

// The strictest class of all of them. `run_folder` may hold a run that is resumed; relative paths
// start in `folder` (empty: the current one). What cannot be read states no class.
control::DataLabel find_label(FileSystem& files, const spec::Recipe& recipe,
                              const std::string& run_folder, const std::string& folder);

// All that a run was made of, for a run that is made of it and could be read without it.
struct Origins {
  control::DataLabel label;   // data_class is at least what the run's recipe states
  std::vector<Json> corpora;  // corpus_described events of all runs that made it, each once
};
// `bases`: checkpoints that it began with, beside those that its recipe and theirs name.
Origins find_origins(FileSystem& files, const std::string& run,
                     const std::vector<std::string>& bases);

// The member of run_started's details that names data without a class in what a run was made of.
inline constexpr const char* kUnlabelledOrigin = "unlabelled_origin";

// Of a job that is there, as its files are now; absent where it neither trains nor is a
// deployment, or its recipe is gone.
std::optional<control::DataLabel> label_of_job(FileSystem& files,
                                               const control::JobRequest& request);

// Key, path and remedy where a corpus of the recipe is missing, or the text that it would be made
// of; absent: all is there.
std::optional<std::string> missing_data(FileSystem& files, const spec::Recipe& recipe);

}  // namespace tutti::cli
