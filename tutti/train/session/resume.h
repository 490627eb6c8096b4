// What may change when a run resumes, and what must not.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

// Every key of a recipe with its value as text: ("optimizer.beta1", "0.9"), in recipe order.
std::vector<std::pair<std::string, std::string>> flatten(const spec::Recipe& recipe);

// The recipe that a run was saved with.
struct SavedRecipe {
  std::string path;         // of the manifest or the events that record it
  std::string yaml;         // spec::to_yaml
  std::string run_id = {};  // of the run that saved it (RunState::run_id); empty: not recorded
  std::string member = "training.recipe";  // of the file at `path`
};

// As the newest checkpoint that looks whole records it; nullopt when there is no such checkpoint,
// or it is of a version that did not record it.
std::optional<SavedRecipe> saved_recipe(FileSystem& files, const std::string& run_folder);

// As the events of the run record it since its last start, for a run that has saved nothing yet;
// nullopt when it never started, or was started by a version that did not record it.
std::optional<SavedRecipe> started_recipe(FileSystem& files, const std::string& run_folder);

// Throws usage where the events of the run show that what was saved is another run's: then its
// recipe is nothing that this run's could be compared with.
void check_own(FileSystem& files, const SavedRecipe& saved, const std::string& run_folder);

// Throws usage naming the first key that RUN/recipe.yaml, of which `text` are the bytes, lacks: it
// is written with every key, and what a cut one lacks would take its default in silence.
void check_whole(const std::string& text, const SavedRecipe& saved, const std::string& run_folder);

// Throws usage naming the first key in which `wanted` differs from what the run was started with
// although it decides the run's arithmetic. Free to change: train.steps and train.target_loss (when
// to stop), checkpoint.* (initialize_from with adapters only), evaluate.*, run.*, parallel.* (with
// another mesh also batch.micro), data.validation, and distill.teacher from one path to another.
// `file`, when not null, is what RUN/recipe.yaml says by itself: what it has otherwise than the run
// was started with is said to be edited.
void check_resumable(const spec::Recipe& stored, const spec::Recipe& wanted,
                     const std::string& run_folder, const spec::Recipe* file = nullptr);

// Likewise, but only where that is what RUN/recipe.yaml says by itself: a run that has saved
// nothing yet may begin again with another recipe, which is not the same as an edited file.
void check_unedited(const spec::Recipe& stored, const spec::Recipe& wanted,
                    const std::string& run_folder, const spec::Recipe& file);

// Throws usage naming the first key that decides what the parameters of the checkpoint with this
// manifest compute, in which RUN/recipe.yaml (`recipe`) is not what they were saved with. Of a run
// these are the model, its adapters, the precision and the form of a sample; of an import or a
// merged model, whose recipe is there to be adapted, the model and its adapters.
void check_recipe_of(const Json& training, const std::string& manifest_path,
                     const spec::Recipe& recipe, const std::string& run_folder);

}  // namespace tutti::train
