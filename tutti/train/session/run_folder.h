// The recipe and the parameters of a finished or interrupted run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::checkpoint {
class Reader;
}

namespace tutti::train {

struct LoadedRun {
  spec::Recipe recipe;
  std::string checkpoint;  // path of the step folder that was read
  int64_t step = 0;
  std::vector<float> master;  // flat, in param_layout order, with adapters and what is below them
  std::string base;           // checkpoint below the adapters; empty without
  // Of find_run(), where the checkpoint is in an object store, for read_parameters(): what has been
  // fetched of it is not fetched again.
  std::shared_ptr<checkpoint::Reader> reader = {};
};

// Reads RUN/recipe.yaml and the newest valid checkpoint (best = true: the one with the lowest
// validation loss). `run` may also be a checkpoint folder itself. Throws not_found or corrupt, and
// usage where recipe.yaml is not what the checkpoint was saved with (check_recipe_of, resume.h). Of
// a checkpoint in an object store only the parameters are read, and count for whether it is valid.
LoadedRun load_run(FileSystem& files, const std::string& run, bool best);

// The same without the parameters: `master` and `base` are empty.
LoadedRun find_run(FileSystem& files, const std::string& run, bool best);

// Takes elements [first, first + values.size()) of a parameter [logical shape], whole rows of it.
using RowSink =
    std::function<void(const spec::PlacedParam&, int64_t first, const std::vector<float>& values)>;

// Hands every parameter of a run that find_run() found to `sink`, f32, few at a time and large ones
// in parts, and fills in run.base: for those that keep the parameters in another form. Once: it
// closes run.reader.
void read_parameters(FileSystem& files, LoadedRun& run, const RowSink& sink);

// Throws unsupported where `folder` is an export with quantized weights; `what` ends the sentence
// "'FOLDER' ...".
void refuse_quantized(FileSystem& files, const std::string& folder, const std::string& what);

// Throws usage where a run that is to be trained has its folder in an object store.
void check_run_folder(FileSystem& files, const std::string& run_folder);

// RUN/recipe.yaml. Throws not_found when `run_folder` is not a run.
spec::Recipe load_recipe(FileSystem& files, const std::string& run_folder);

std::string recipe_path(const std::string& run_folder);
std::string checkpoints_path(const std::string& run_folder);  // of one without checkpoint.store
// What outlives the machine lies here: STORE/NAME of checkpoint.store with the name of the run
// folder, a run folder itself (recipe, tokenizer, checkpoints) but for events; else the run folder.
std::string home_of(const spec::Recipe& recipe, const std::string& run_folder);
// The checkpoints of a run that was started: in its home, as RUN/recipe.yaml says.
std::string find_checkpoints(FileSystem& files, const std::string& run_folder);
std::string events_path(const std::string& run_folder);
std::string mlperf_log_path(const std::string& run_folder);
// The stored form of the run's tokenizer (data/tokenizers/tokenizer.h); a run need not have one.
std::string tokenizer_path(const std::string& run_folder);

}  // namespace tutti::train
