// Starting a run from the parameters of another: recipe key checkpoint.initialize_from. Only
// parameters are taken; the optimizer and the data position start afresh. With adapters these are
// the frozen parameters, the run's base: its checkpoints refer to it instead of holding it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

// The checkpoint that `folder` stands for: itself, or the newest valid one of a run folder or of a
// folder of step folders. Throws not_found naming `key` and what such a folder must hold, and usage
// where the recipe of the run that it lies in was edited (check_recipe_of, resume.h). In an object
// store, where each look at all bytes is a download, it is the newest whose manifest and sizes are
// right; load_weights() compares what it loads.
std::string find_weights(FileSystem& files, const std::string& folder,
                         const char* key = "checkpoint.initialize_from");

// Takes a parameter's values [logical shape] f32.
using ParameterSink = std::function<void(const spec::PlacedParam&, const std::vector<float>&)>;

// Hands every parameter of the checkpoint (stored as f32, bf16 or f16) to `sink`, with adapters
// every frozen one. Throws usage naming the first tensor, in forward order, that one side lacks or
// whose shapes differ, with both shapes and the key to set; and the first field of the model that
// differs without showing in any shape. A checkpoint of adapters is refused: it must be merged
// first.
void load_weights(FileSystem& files, const std::string& checkpoint, const spec::Recipe& recipe,
                  const ParameterSink& sink);

// What load_weights would throw, without reading a parameter.
void check_weights(FileSystem& files, const std::string& checkpoint, const spec::Recipe& recipe);

// How a checkpoint of adapters refers to the checkpoint below it.
checkpoint::Base base_of(FileSystem& files, const std::string& checkpoint);

// Where that checkpoint is now: at its path, or in `given`, where the recipe says (empty: nothing).
// Throws not_found when it is at neither path, and corrupt when another one is there.
std::string find_base(FileSystem& files, const checkpoint::Base& base, const std::string& given);

// The same of any checkpoint that a run refers to: `what` it is ("base checkpoint") and what to do
// without it, for the errors.
std::string find_recorded(FileSystem& files, const checkpoint::Base& recorded,
                          const std::string& given, const char* what, const char* remedy);

}  // namespace tutti::train
