// Trains a SentencePiece model on text, through its library. Spaces and lines are kept and what is
// not in the vocabulary falls back to bytes, so that decoding gives the text back: normalization
// `identity`, extra white space not removed, digits apart, <unk> 0, <s> 1, </s> 2, then 256 bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::data {

struct TrainTokenizerOptions {
  std::vector<std::string> sources;  // as in data/prepare/prepare.h, as are the next two
  std::vector<std::string> include;
  std::string json_key = "text";
  std::string output;        // path of the .model
  std::string kind = "bpe";  // or unigram, char
  int64_t vocabulary = 32000;
  // Trains on this much text at most, which is held in memory several times: lines chosen by a hash
  // of their position and `seed`, evenly over all sources.
  int64_t sample_bytes = int64_t{256} << 20;
  uint64_t seed = 0;
  int threads = 0;  // that read; 0: one per core. Training uses 16, whatever the machine, because
                    // the number is part of the model
  bool overwrite = false;
  // Of reading; training itself reports none. Called on this thread, may throw to cancel.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct TrainTokenizerResult {
  int64_t vocabulary = 0;
  int64_t source_bytes = 0;  // as stored
  int64_t lines = 0;         // trained on
  int64_t line_bytes = 0;
  std::string hash;  // XXH3 of the file
  double seconds = 0;
};

// Throws usage for options, sources without text and a vocabulary that the text cannot fill; what
// reading throws.
TrainTokenizerResult train_tokenizer(FileSystem& files, const TrainTokenizerOptions& options);

}  // namespace tutti::data
