// The tokenizer of a Hugging Face folder as metadata of a GGUF file, and back.
//
//   "gpt2"   byte-level BPE: tokenizer.json
//   "llama"  SentencePiece BPE: tokenizer.model
//
// with ids, kinds of tokens, beginning and end of text, and the chat template.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/checkpoint/gguf/file.h"

namespace tutti::checkpoint {

// Appends tokenizer.* for the files in `folder`, whose config.json is `config`; without any,
// tokenizer.ggml.model is "no_vocab". `notes` receives messages for the user. Throws unsupported
// naming the file and the feature that GGUF cannot express.
void append_vocabulary(FileSystem& files, const std::string& folder, const Json& config,
                       GgufMetadata& metadata, std::vector<std::string>& notes);

// Writes the tokenizer's files of `file` into `folder`, and the ids of its control tokens into
// `config`. Omits a tokenizer of another kind, with a note. Throws corrupt naming file and key.
void write_vocabulary(FileSystem& files, const GgufFile& file, const std::string& folder,
                      Json& config, std::vector<std::string>& notes);

}  // namespace tutti::checkpoint
