// PREFIX.meta.json: where a corpus came from and what it must hold.
//
//   {"format": "tutti-corpus", "version": 1, "created": "2026-01-31T12:00:00Z",
//    "tokenizer": "byte", "vocabulary_size": 257, "dtype": "u16",
//    "documents": 3, "tokens": 1234, "bin_bytes": 2468, "bin_xxh3": "16 hex digits",
//    "text_bytes": 1231, "sources": ["path", ...], "files": 3, "source_bytes": 1231,
//    "split": {"part": "training", "method": "documents", "share": 0.05, "seed": 0},
//    "skipped": {"binary": 2}, "licence": "...", "data_class": "..."}
//
// `part` is "training", "validation" or, without a holdout, "all"; licence and data_class are
// present when they were given.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"

namespace tutti::data {

struct CorpusMeta {
  std::string created;
  std::string tokenizer;
  int64_t vocabulary_size = 0;
  std::string dtype;
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t bin_bytes = 0;
  std::string bin_xxh3;
  int64_t text_bytes = 0;  // of this part's documents
  std::vector<std::string> sources;
  int64_t files = 0;         // read for all parts together
  int64_t source_bytes = 0;  // likewise
  std::string part;
  std::string split_method;  // "none", "documents" or "tail"
  double split_share = 0;
  uint64_t split_seed = 0;
  std::vector<std::pair<std::string, int64_t>> skipped;  // reason, files
  std::string licence, data_class;
};

Json corpus_meta_json(const CorpusMeta& meta);
// Throws corrupt naming `origin` and the member.
CorpusMeta corpus_meta_from_json(const Json& value, const std::string& origin);

CorpusMeta load_corpus_meta(FileSystem& files, const std::string& prefix);

}  // namespace tutti::data
