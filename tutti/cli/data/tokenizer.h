// The tokenizer of a run: kept in its folder, so that the run can be used without its corpus.
#pragma once

#include <memory>
#include <string>

#include "tutti/base/file.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {

// Copies the tokenizer of the training corpus to RUN/tokenizer.json, and the files that it was read
// from into RUN/tokenizer/. Does nothing when the corpus
// has none. Throws usage when it has more tokens than the model's vocabulary, and when the run has
// checkpoints whose ids have another meaning.
void keep_tokenizer(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder);

// What keep_tokenizer would throw.
void check_tokenizer(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder);

// The run folder whose checkpoint was loaded.
std::string run_folder_of(const train::LoadedRun& run);

// As find_tokenizer, but null when neither file exists.
std::unique_ptr<data::Tokenizer> try_tokenizer(FileSystem& files, const spec::Recipe& recipe,
                                               const std::string& run_folder);

// RUN/tokenizer.json, or else that of the training corpus. Throws not_found when neither exists.
std::unique_ptr<data::Tokenizer> find_tokenizer(FileSystem& files, const spec::Recipe& recipe,
                                                const std::string& run_folder);

}  // namespace tutti::cli
