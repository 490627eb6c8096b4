// The corpora of a recipe with data.prepare, as commands need them: where the text is, where the
// corpora are kept, and that they are there (data/corpus/prepared.h); of any other recipe, that
// they are there and have checksums.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::launch {

// Makes data.prepare.source absolute: beside the recipe file, or from the current folder where
// there is none beside it. What is at neither stays as it is.
void locate_source(FileSystem& files, spec::Recipe& recipe, const std::string& recipe_path);

// Names the corpora in data.train and data.validation, where the recipe names none. They are kept
// in data.prepare.folder: the user's cache, where the recipe says nothing and the user has one,
// else in the run's folder.
void name_corpora(FileSystem& files, spec::Recipe& recipe, const std::string& run_folder);

// Throws what the start of a run would say about its corpora: missing, damaged, too short. Those of
// data.prepare that the first run will make count as there when their text is.
void check_corpora(FileSystem& files, const spec::Recipe& recipe);

// Makes them where they are missing, with progress on standard error.
void make_corpora(FileSystem& files, const spec::Recipe& recipe);

// Throws not_found when a corpus of data.train or data.validation is missing, and corrupt when the
// sizes of its files say that it is empty. Reads nothing of them: for runs whose clock starts
// before their corpora are opened, and for launchers, whose folders outlive a start that fails.
void require_corpora(FileSystem& files, const spec::Recipe& recipe);

// Records the checksums of the corpora that have none (data/corpus/checksums.h), with progress on
// standard error. Where they cannot be written it says so, and their damage stays unnoticed. A
// missing corpus is reported when it is opened.
void record_checksums(FileSystem& files, const spec::CorpusBlend& blend);

}  // namespace tutti::launch
