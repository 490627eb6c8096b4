// The byte layout of a corpus, shared by its reader (corpus.h) and writer (writer.h):
// Megatron-LM's indexed dataset (megatron/core/datasets/indexed_dataset.py). All numbers are
// little-endian. A corpus named PREFIX is a few files side by side:
//
//   PREFIX.bin              token ids back to back, nothing else
//   PREFIX.idx              where sequences and documents are in it, as below
//   PREFIX.tokenizer.json   what the ids mean (tokenizer.h); absent in corpora made elsewhere
//   PREFIX.meta.json        where the text came from (meta.h); absent likewise
//   PREFIX.mask             which tokens are not trained on (prepare/loss_mask.h); absent: none
//   PREFIX.checksums        of .bin and .idx (checksums.h); absent until first use
//
// PREFIX.idx, S sequences in D - 1 documents:
//
//   offset      type     content
//   0           9 bytes  "MMIDIDX\0\0"
//   9           u64      version, 1
//   17          u8       element type: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
//   18          u64      S
//   26          u64      D, the length of the last array
//   34          i32[S]   tokens of each sequence
//   34 + 4S     i64[S]   first byte of each sequence in .bin
//   34 + 12S    i64[D]   first sequence of each document; starts with 0 and ends with S
//   34+12S+8D   i8[S]    modes, only in multimodal corpora
//
// Worked example, two documents [5, 6, 7] and [8] as u16: .bin is 05 00 06 00 07 00 08 00, and
// .idx the header with type 8, S = 2, D = 3; lengths 3, 1; offsets 0, 6; documents 0, 1, 2.
// The header is 34 bytes long, so the arrays are unaligned in memory.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "tutti/base/dtype.h"

namespace tutti::data {

static_assert(std::endian::native == std::endian::little, "the formats are read in place");

inline constexpr char kIndexMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr int64_t kIndexHeaderBytes = 34;
inline constexpr int64_t kMaxSequenceTokens = std::numeric_limits<int32_t>::max();

// From this vocabulary size on ids are stored as i32, below as u16: Megatron's rule.
inline constexpr int64_t kWideVocabulary = 65500;
DType token_dtype(int64_t vocabulary);

uint8_t index_dtype_code(DType type);            // aborts for types the format lacks
std::optional<DType> index_dtype(uint8_t code);  // nothing when the code is unknown

struct CorpusPaths {
  std::string bin, idx, tokenizer, meta, mask, checksums;
};
CorpusPaths corpus_paths(const std::string& prefix);

// Beside a corpus while its files take their names: what has them is of a preparation that did not
// end, and the next one may replace it.
inline constexpr const char* kPendingSuffix = ".pending";

// The corpus that holds what was held out of `prefix`: "PREFIX-validation".
std::string validation_prefix(const std::string& prefix);

}  // namespace tutti::data
