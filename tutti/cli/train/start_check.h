// What the start of a run would refuse, found before it is started: by dry runs, and at submission.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

// Throws, with the words of the start, what is wrong beside the corpora themselves
// (launch/prepared_data.h) with what the recipe names: the key of its checkpoints; its tokenizer;
// and of a run that `run_folder` holds no checkpoint of, the checkpoint that it begins with and its
// teacher. Reads no parameters.
void check_start(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder);

}  // namespace tutti::cli
