// Divides a corpus at a share of its tokens, in the middle of a document where it must be: the
// split of a corpus that is one text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/data/corpus/lineage.h"
#include "tutti/data/corpus/writer.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {

// A corpus being prepared: all of it, or its training or validation part.
struct CorpusPart {
  std::string prefix;
  std::unique_ptr<CorpusWriter> writer;
  CorpusSummary summary;
  int64_t text_bytes = 0;
  std::vector<SourceCount> counts = {};
  std::vector<uint32_t> masked = {};  // tokens of each document; of exchanges
  std::vector<MaskedRange> masked_further = {};
  // Of the document being written: tokens in all, those at its start that are masked.
  int64_t open_tokens = 0, open_masked = 0;
};

// Divides the whole corpus at `whole_prefix` into two parts, the second of `share` of its tokens.
// `sources`: how many documents each source gave, one source after the other.
void write_tail_split(FileSystem& files, const std::string& whole_prefix,
                      const std::vector<SourceCount>& sources, const Tokenizer& tokenizer,
                      double share, std::vector<CorpusPart>& parts);

// The undivided corpus of a tail split; gone with this object.
class TemporaryCorpus {
 public:
  TemporaryCorpus(FileSystem& files, std::string prefix)
      : files_(files), prefix_(std::move(prefix)) {}
  ~TemporaryCorpus();
  TemporaryCorpus(const TemporaryCorpus&) = delete;
  TemporaryCorpus& operator=(const TemporaryCorpus&) = delete;
  const std::string& prefix() const { return prefix_; }

 private:
  FileSystem& files_;
  std::string prefix_;
};

}  // namespace tutti::data
