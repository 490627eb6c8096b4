// The corpora of a recipe that names a text instead of corpora (data.prepare): made by the first
// run that needs them, found by all later ones.
//
// They are FOLDER/NAME-KEY/corpus and corpus-validation, with NAME from the source's file name and
// KEY a hash of what decides the tokens: the source's contents, the tokenizer and the share held
// out. Another source, or the same one edited, therefore gets another folder, and what is there is
// right. A folder appears complete, by one rename; of several processes that make the same one at
// once the first to finish wins, and all find the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::data {

// The prefix of the training corpus; that held out has validation_prefix() of it. Reads the source
// where the recipe does not give its hash, and throws not_found when it is gone. `config.folder` is
// not empty.
std::string prepared_prefix(FileSystem& files, const spec::PrepareConfig& config);

// Where data.train is empty: names the prepared corpora in data.train, and in data.validation
// unless it has one or nothing is held out. They need not exist.
void name_prepared_corpora(FileSystem& files, spec::DataConfig& data);

// Makes the corpora that name_prepared_corpora() named, unless they are there. Does nothing for a
// recipe that names corpora of its own. `progress` as in PrepareOptions. Throws usage naming
// data.prepare.source or data.prepare.xxh3 when the file is gone or another one, and what
// prepare() throws.
void make_prepared_corpora(FileSystem& files, const spec::DataConfig& data,
                           const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace tutti::data
