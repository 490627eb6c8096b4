// Writes PREFIX.bin, PREFIX.idx (format.h) and PREFIX.checksums (checksums.h) from a
// stream of tokens.
//
//   CorpusWriter writer(files, "run/train", token_dtype(257));
//   writer.append(tokens); writer.end_document(); ...
//   writer.finish(); writer.commit();
//
// All are written as PREFIX.*.tmp, made durable by finish() and renamed by commit(), the
// index last: a corpus with an index is complete. Without commit() the destructor removes the
// temporary files. In an object store there are no temporary files: commit() closes the uploads, in
// the same order; those that a killed process left of this PREFIX are ended first. One sequence per
// document, more only when a document is longer than max_sequence_tokens. A corpus that need not
// outlive this process is not `durable`: nothing is synced, and it gets no checksums. Memory: 4
// bytes per sequence, 8 per document and per piece of checksums, plus one buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/file.h"
#include "tutti/base/hash.h"
#include "tutti/data/corpus/checksums.h"
#include "tutti/data/corpus/format.h"

namespace tutti::data {

// Appends ids to `out` as they are stored; aborts when one does not fit `dtype` (u16 or i32).
void pack_tokens(std::span<const int32_t> tokens, DType dtype, std::vector<char>& out);

struct CorpusSummary {
  int64_t documents = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t bin_bytes = 0;
  std::string content_hash;  // XXH3 of .bin, 16 hex digits
};

class CorpusWriter {
 public:
  CorpusWriter(FileSystem& files, const std::string& prefix, DType dtype,
               int64_t max_sequence_tokens = kMaxSequenceTokens, bool durable = true);
  ~CorpusWriter();
  CorpusWriter(const CorpusWriter&) = delete;
  CorpusWriter& operator=(const CorpusWriter&) = delete;

  void append(std::span<const int32_t> tokens);
  // The same for tokens already in stored form.
  void append_packed(const void* data, int64_t tokens);
  void end_document();
  int64_t tokens() const { return summary_.tokens; }

  // Ends the last document if it is open, completes the temporary files and syncs them.
  CorpusSummary finish();
  // Renames them to their final names, replacing what is there, and syncs the folder.
  void commit();

 private:
  void flush();
  void write_index();
  void write_checksums(int64_t idx_bytes, uint64_t idx_xxh3);

  FileSystem& files_;
  CorpusPaths paths_;
  std::string bin_temporary_, idx_temporary_, checksums_temporary_;
  DType dtype_;
  int64_t max_sequence_tokens_;
  bool durable_;
  bool in_store_;  // of objects
  std::unique_ptr<WritableFile> bin_, idx_, checksums_file_;
  std::vector<char> buffer_;
  std::vector<char> packed_;
  Hasher hasher_;
  ChecksumBuilder checksums_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> documents_ = {0};
  int64_t open_tokens_ = 0;  // of the sequence being written
  bool document_open_ = false;
  bool finished_ = false;
  bool committed_ = false;
  CorpusSummary summary_;
};

}  // namespace tutti::data
