// PREFIX.mask: which tokens of each document are not trained on: those at its start, because they
// are the prompt of what follows, and further ranges where several answers are trained on. Absent:
// none.
//
//   offset  type     content
//   0       8 bytes  "TUTMASK\0"
//   8       u32      version: 1, or 2 with ranges behind the first answers
//   12      u32      zero
//   16      u64      D, documents of the corpus
//   24      u64      tokens of the corpus
//   32      u64      XXH3 (seed 0) of all that follows
//   40      u32[D]   masked tokens at the start of each document, at most its length
//   version 2, for every further range, in order and apart from each other:
//           u64      document
//           u32, u32 its first token in the document, and the one behind its last
//
// All numbers are little-endian. Example, documents of 5 and 3 tokens with prompts of 2 and 0:
// D = 2, tokens = 8, array 2, 0; the file has 48 bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/data/corpus/corpus.h"

namespace tutti::data {

// Tokens [begin, end) of a document, behind its first answer, that are not trained on.
struct MaskedRange {
  uint64_t document = 0;
  uint32_t begin = 0, end = 0;
};

// The file as bytes, of version 1 where there are no further ranges. Counts are below 2^32.
std::string loss_mask_bytes(const std::vector<uint32_t>& masked, int64_t tokens,
                            const std::vector<MaskedRange>& further = {});

class LossMask {
 public:
  // Throws corrupt or unsupported naming the file and what is wrong, such as a mask that was made
  // for another corpus.
  LossMask(FileSystem& files, const Corpus& corpus);

  int64_t masked(int64_t document) const;  // at its start
  std::vector<MaskedRange> further(int64_t document) const;
  int64_t masked_tokens() const { return masked_tokens_; }  // of all documents

 private:
  MaskedRange range_at(int64_t index) const;
  void check_ranges(const Corpus& corpus, const std::string& path);

  std::unique_ptr<MappedFile> file_;
  const char* counts_ = nullptr;
  int64_t documents_ = 0;
  int64_t ranges_ = 0;
  int64_t masked_tokens_ = 0;
};

// The mask beside the corpus, or null.
std::unique_ptr<const LossMask> open_loss_mask(FileSystem& files, const Corpus& corpus);

}  // namespace tutti::data
