// Finds the tokenizer that a user names.
#pragma once

#include <memory>
#include <string>

#include "tutti/base/file.h"
#include "tutti/data/tokenizers/control_tokens.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {

// `name` is
//   byte                      (char has no vocabulary before there is text)
//   a .tokenizer.json         the stored form of a corpus or run; takes no options
//   a tokenizer.json          of Hugging Face's kind (hf_tokenizer.h)
//   a .model                  of SentencePiece (sentencepiece_tokenizer.h)
//   a folder                  with tokenizer.json or tokenizer.model in it
// Throws usage for another name, not_found, and what the kinds throw.
std::unique_ptr<Tokenizer> open_tokenizer(FileSystem& files, const std::string& name,
                                          const TokenizerOptions& options = {});

}  // namespace tutti::data
