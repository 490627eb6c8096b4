// PREFIX.meta.json: where a corpus came from and what it must hold.
//
//   {"format": "tutti-corpus", "version": 1, "created": "2026-01-31T12:00:00Z",
//    "tokenizer": "byte", "tokenizer_hash": "16 hex digits", "vocabulary_size": 257,
//    "dtype": "u16",
//    "documents": 3, "tokens": 1234, "bin_bytes": 2468, "bin_xxh3": "16 hex digits",
//    "text_bytes": 1231, "files": 3, "source_bytes": 1231,
//    "sources": [{"path": "books", "files": 3, "bytes": 1231, "documents": 3, "tokens": 1234,
//                 "hash": "16 hex digits", "licence": "...", "data_class": "..."}, ...],
//    "split": {"part": "training", "method": "documents", "share": 0.05, "seed": 0},
//    "skipped": {"binary": 2}, "licence": "...", "data_class": "..."}
//
// `part` is "training", "validation" or, without a holdout, "all"; licence and data_class are
// present when they were given, for all sources or for one. Of a source, documents and tokens are
// those of this part, files and bytes those that were read for all parts. `hash` is the XXH3 of a
// file's stored bytes; of a folder, that of the lines "HASH NAME\n" of its files that were read, in
// order, where NAME is the path below the folder. tokenizer_hash: tokenizer_hash() of
// data/tokenizers/tokenizer.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"

namespace tutti::data {

struct SourceMeta {
  std::string path;
  int64_t files = 0, bytes = 0;
  int64_t documents = 0, tokens = 0;
  std::string hash;
  std::string licence, data_class;
};
Json source_meta_json(const SourceMeta& source);

struct CorpusMeta {
  std::string created;
  std::string tokenizer;
  std::string tokenizer_hash;  // empty in corpora of earlier versions
  int64_t vocabulary_size = 0;
  std::string dtype;
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t bin_bytes = 0;
  std::string bin_xxh3;
  int64_t text_bytes = 0;  // of this part's documents
  std::vector<SourceMeta> sources;
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
