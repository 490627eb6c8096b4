// A corpus read through mmap: the flat stream of tokens of all its documents, and where each
// document starts. Format: format.h; written by Tutti or by Megatron-LM.
//
// Opening validates the whole index against the format and the sizes of the files, so that a
// damaged corpus is an Error naming file and cause at start-up and never a wrong read later:
//   not_found  neither file exists, or one of the pair is missing
//   corrupt    wrong magic, truncated or oversized file, impossible counts, lengths, offsets or
//              document indices, or no tokens at all
//   unsupported  another version of the format, or elements that are not integers
// Where PREFIX.checksums is there, read() compares the tokens with it before it hands them out.
//
// A corpus in an object store is fetched whole, unless it is opened by pieces or on demand: then
// the index is, and tokens as they are read. By pieces they are kept for later (piece_cache.h);
// that needs the checksums. On demand they are fetched with each read() and not compared, which
// suits a few. All methods are const and may be called from any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/base/dtype.h"
#include "tutti/base/file.h"
#include "tutti/data/corpus/checksums.h"
#include "tutti/data/corpus/piece_cache.h"

namespace tutti::data {

struct CorpusOptions {
  bool checksums = true;  // false: PREFIX.checksums is ignored
  bool by_pieces = false;
  bool on_demand = false;
  CacheOptions cache = {};
};

class Corpus {
 public:
  Corpus(FileSystem& files, const std::string& prefix, const CorpusOptions& options = {});

  const std::string& prefix() const { return prefix_; }
  DType dtype() const { return dtype_; }
  int64_t tokens() const { return tokens_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return document_entries_ - 1; }
  bool has_modes() const { return has_modes_; }

  // Sequence s covers tokens [sequence_first(s), sequence_first(s) + sequence_tokens(s)).
  int64_t sequence_first(int64_t sequence) const;
  int64_t sequence_tokens(int64_t sequence) const;
  // Document d covers sequences [document_first(d), document_first(d + 1)); d up to documents().
  int64_t document_first(int64_t document) const;
  // Tokens [first, first + count) of document d.
  struct TokenRange {
    int64_t first, count;
  };
  TokenRange document_range(int64_t document) const;

  // out[i] = token first + i of the stream, for i in [0, count): .bin is back to back, so a read
  // may cross sequences. The range must lie in [0, tokens()). Throws corrupt where checksums do not
  // hold, naming file and bytes, and for an i64 token that does not fit; ids are not compared with
  // a vocabulary here.
  void read(int64_t first, int64_t count, int32_t* out) const;

  // The bytes of .bin and .idx as stored; nothing is compared.
  std::string_view bin_bytes() const;  // unsupported by pieces and on demand
  int64_t bin_size_bytes() const { return bin_size_bytes_; }
  std::string_view idx_bytes() const { return idx_->bytes(); }
  // Hint that tokens [first, first + count) are read soon.
  void will_need(int64_t first, int64_t count) const;
  bool by_pieces() const { return pieces_ != nullptr; }
  int64_t fetched_bytes() const;  // of tokens, from an object store

 private:
  void open_pieces(FileSystem& files, ObjectStore& store, const CacheOptions& options);
  void read_header();
  int64_t check_sequences() const;  // returns the number of tokens
  void check_documents() const;

  std::string prefix_;
  std::unique_ptr<MappedFile> bin_, idx_;  // bin_ is null by pieces
  int64_t bin_size_bytes_ = 0;
  std::unique_ptr<const CorpusChecksums> checksums_;  // or null
  std::unique_ptr<PieceCache> pieces_;                // or null
  DType dtype_ = DType::u16;
  int64_t tokens_ = 0;
  int64_t sequences_ = 0;
  int64_t document_entries_ = 0;
  bool has_modes_ = false;
  bool is_fetched_ = false;          // bin_ is of what read() fetches
  const char* lengths_ = nullptr;    // i32[sequences_], unaligned, as are the next two
  const char* offsets_ = nullptr;    // i64[sequences_]
  const char* documents_ = nullptr;  // i64[document_entries_]
};

// True when both files of the pair exist.
bool corpus_exists(FileSystem& files, const std::string& prefix);

}  // namespace tutti::data
