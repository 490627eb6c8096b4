// The loss of a trained run on a corpus: what `tutti eval` prints and training reports as
// validation loss.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::train {

struct RunEvaluation {
  double loss = 0;     // mean over tokens, in nats; perplexity is exp(loss)
  int64_t tokens = 0;  // predicted ones, each exactly once
  double seconds = 0;
};

// Bytes of the text whose tokens an evaluation predicts, so that losses of models with different
// tokenizers can be compared (bits per byte = loss * tokens / bytes / ln 2). Of a corpus with a
// loss mask these are the bytes after each document's prompt, and of packed documents those after
// their first token: both by decoding with `tokenizer`, and 0 without one. Otherwise all bytes of
// the corpus: from its PREFIX.meta.json, else by decoding; 0 without either. `data` says how
// documents are packed and where pieces of corpora from an object store are kept.
int64_t predicted_text_bytes(FileSystem& files, const std::string& prefix,
                             const data::Tokenizer* tokenizer, const spec::DataConfig& data);

// Evaluates the run's parameters on every sample of `blend` (data/corpus/dataset.h) in the
// precision, packing, sequence length and micro-batch of its recipe, so that the result equals that
// of training at the same step to the last bit. `progress` gets micro-batches done and in all; what
// it throws ends the evaluation. Throws as data::Corpus and data::Loader do, such as corrupt for
// ids beyond the vocabulary.
RunEvaluation evaluate_run(FileSystem& files, const LoadedRun& run, const spec::CorpusBlend& blend,
                           const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace tutti::train
