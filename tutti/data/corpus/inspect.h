// What a corpus holds and whether it is sound, as plain values for `tutti data inspect`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/file.h"
#include "tutti/data/corpus/meta.h"

namespace tutti::data {

struct InspectOptions {
  int64_t sample_tokens = 400;  // of the sample text
  int64_t sample_first = 0;     // token it starts at
  int64_t sequence = 0;         // show how documents pack into windows of so many rows; 0: do not
  // Read all of .bin: hashes of it and its pieces, ids below the vocabulary. Without it only the
  // tokens of the sample are read, and fetched from an object store.
  bool verify = true;
};

struct CorpusCheck {
  std::string name;
  bool ok = true;
  std::string detail;  // one sentence
};

// How data.packing: documents would use the corpus.
struct PackingInspection {
  int64_t sequence = 0;  // T
  int64_t windows = 0;
  int64_t useful_rows = 0;
  double useful_share = 1;     // of windows * T
  double attention_share = 0;  // sum of len^2 over windows * T^2: the work of whole sequences saved
  int64_t split_documents = 0;         // longer than a window
  int64_t documents_without_rows = 0;  // shorter than two tokens
};

struct CorpusInspection {
  std::string prefix;
  DType dtype = DType::u16;
  int64_t documents = 0, sequences = 0, tokens = 0;
  int64_t bin_bytes = 0, idx_bytes = 0;
  int64_t shortest_document = 0, longest_document = 0;  // tokens
  double mean_document = 0;
  std::optional<int32_t> largest_id;  // with `verify`
  std::string tokenizer;              // empty when the corpus came without one
  int32_t vocabulary = 0;             // 0 likewise
  int32_t end_of_document = -1;       // -1: none
  std::optional<CorpusMeta> meta;
  std::optional<int64_t> masked_tokens;  // with a loss mask
  std::optional<PackingInspection> packing;
  std::vector<int32_t> sample_ids;
  std::string sample_text;  // decoded; empty without a tokenizer
  std::vector<CorpusCheck> checks;
  bool ok = true;  // all checks
};

// Throws what Corpus throws when the pair of files cannot be opened; everything else that is
// wrong is a check with ok == false.
CorpusInspection inspect_corpus(FileSystem& files, const std::string& prefix,
                                const InspectOptions& options = {});

}  // namespace tutti::data
