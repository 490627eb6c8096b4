// Reads Hugging Face's tokenizer.json into plain values. Understood: a BPE model with its flags;
// pre-tokenizers ByteLevel, Split (isolated), Digits, Metaspace and sequences of them; normalizers
// NFC, NFD, NFKC, NFKD, Prepend, Replace (of a string) and sequences; decoders ByteLevel,
// Metaspace, Replace, ByteFallback, Fuse, Strip and sequences; added tokens. A post-processor only
// tells which token starts a text; truncation and padding are for batches of requests and mean
// nothing here. Everything else throws unsupported naming path, key and value; what is not sound
// throws corrupt.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/data/added_tokens.h"
#include "tutti/data/bpe.h"
#include "tutti/data/text_normalizer.h"
#include "tutti/data/text_split.h"

namespace tutti::data {

struct HfDecoding {
  bool marks_to_spaces = false;
  int strip_spaces = 0;  // so many at most from the start of a text
};

struct HfTokenizerFile {
  bool byte_level = false;  // tokens are bytes, written in GPT-2's alphabet
  std::vector<std::pair<std::string, int32_t>> tokens;  // bytes and id, sorted by id
  std::vector<std::pair<std::string, std::string>> merges;
  BpeOptions bpe;
  std::vector<AddedToken> added;
  std::vector<NormalizeStep> normalizer;
  std::vector<SplitStep> splits;
  HfDecoding decoding;
  std::string begin;  // the token that the post-processor puts first; may be empty
};

// The id of the token that the file spells `content`; -1 when there is none.
int32_t find_hf_token(const HfTokenizerFile& file, const std::string& content);

HfTokenizerFile read_hf_tokenizer(std::string_view bytes, const std::string& origin);

}  // namespace tutti::data
