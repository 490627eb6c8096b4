// The tokenizer of a Hugging Face model, in imported runs and in exports.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::train {

// Keeps the tokenizer of the model in the folder `source` (tokenizer.json, or else
// tokenizer.model) as that of the run: tokenizer_path and the originals beside it. Documents start
// with the token that transformers puts before a text. Without a tokenizer that can be read and has
// at most `vocabulary` tokens the result is null, nothing is written, and `notes` says why.
std::unique_ptr<data::Tokenizer> take_tokenizer(FileSystem& files, const std::string& source,
                                                int64_t vocabulary, const std::string& run_folder,
                                                std::vector<std::string>& notes);

// The files that the run's own tokenizer was read from. None when it has no tokenizer, or one of
// Tutti's own kinds, which no other program reads; `notes` then says so. Throws corrupt when a file
// is not what was kept.
std::vector<data::OriginalFile> tokenizer_originals(FileSystem& files,
                                                    const std::string& run_folder,
                                                    std::vector<std::string>& notes);

}  // namespace tutti::train
