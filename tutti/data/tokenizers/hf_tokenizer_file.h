// Reads Hugging Face's tokenizer.json into plain values: models BPE, Unigram, WordPiece and
// WordLevel; normalizers, pre-tokenizers, post-processors and decoders as hf_steps_reader.cpp lists
// them; added tokens. A post-processor only defines which tokens start a text; truncation and
// padding are for batches of requests and mean nothing here. Everything else throws unsupported
// naming path, key and value; what is not sound throws corrupt.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/data/tokenizers/added_tokens.h"
#include "tutti/data/tokenizers/bpe.h"
#include "tutti/data/tokenizers/text_decoder.h"
#include "tutti/data/tokenizers/text_normalizer.h"
#include "tutti/data/tokenizers/text_split.h"

namespace tutti::data {

enum class HfModelKind { bpe, unigram, word_piece, word_level };

struct HfModelFile {
  HfModelKind kind = HfModelKind::bpe;
  std::vector<std::pair<std::string, int32_t>> tokens;      // bytes and id, sorted by id
  int32_t unknown = -1;                                     // the token for what has none
  std::vector<std::pair<std::string, std::string>> merges;  // BPE
  BpeOptions bpe;
  std::vector<double> scores;       // Unigram: by token
  bool byte_fallback = false;       // Unigram
  std::string continuation = "##";  // WordPiece: prefix of tokens inside a word
  int64_t most_chars = 100;         // WordPiece: words of more are unknown
};

struct HfTokenizerFile {
  bool byte_level = false;  // tokens are bytes, written in GPT-2's alphabet
  HfModelFile model;
  std::vector<AddedToken> added;
  std::vector<NormalizeStep> normalizer;
  std::vector<SplitStep> splits;
  std::vector<DecodeStep> decoder;
  std::vector<std::string> begin;  // the tokens that the post-processor puts first
};

// The id of the token that the file spells `content`; -1 when there is none.
int32_t find_hf_token(const HfTokenizerFile& file, const std::string& content);

HfTokenizerFile read_hf_tokenizer(std::string_view bytes, const std::string& origin);

}  // namespace tutti::data
