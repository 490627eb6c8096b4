// What lies between the operations of attention and calls of the fused kernels (sdpa.h): which rows
// a call takes, and what becomes of its results. Everything is found on the device, so that a
// recorded graph serves whatever documents come.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tutti/base/attention_workspace.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Where the rows of batch elements begin in an operand with rows of `ld` elements.
struct RowTable {
  int64_t ld = 0;
  int32_t* offsets = nullptr;  // [elements + 1], ascending
};
inline constexpr int kRowTables = 7;
using RowTables = std::array<RowTable, kRowTables>;  // those without offsets are not written

// The slots of a class of documents, [batch * size.slots]: empty ones have length 0.
struct DocumentSlots {
  DocumentClass size;
  int32_t* lengths = nullptr;
  RowTables tables;
};

// From starts[batch * tokens] (engine/attention_ops.h). A document is a run of rows that begin at
// its first row, of which no later row sees one; those of more than kShortDocument rows go into the
// slots of their class. The others are left to the plain kernels: shortened[batch * tokens] are the
// starts of their rows, and for rows of a document with a slot its end: they see nothing, and whole
// tiles of them cost nothing.
void find_documents(CudaStream& stream, const char* op, int64_t batch, int64_t tokens,
                    const int32_t* starts, int32_t* shortened,
                    const std::vector<DocumentSlots>& classes);

// Of a ring, the keys of another rank: at most one document of a sequence lies on both. Queries
// [first_query, first_query + queries[b]) see the last keys[b] of the key_count keys.
struct SharedDocument {
  int32_t *queries = nullptr, *keys = nullptr;  // [batch]
  RowTables query_tables, key_tables;
};
void find_shared_document(CudaStream& stream, const char* op, int64_t batch, int64_t rows,
                          int64_t first_query, int64_t key_count, const int32_t* starts,
                          const SharedDocument& found);

// The log-sum-exp of the documents of a class, packed [slots, heads, most_tokens], to or from its
// place in lse [batch, heads, tokens]. Packed rows beyond a document are zero.
void unpack_lse(CudaStream& stream, const char* op, const DocumentSlots& slots, int64_t batch,
                int64_t tokens, int64_t heads, const float* packed, float* lse);
void pack_lse(CudaStream& stream, const char* op, const DocumentSlots& slots, int64_t batch,
              int64_t tokens, int64_t heads, const float* lse, float* packed);

// Which rows of a sequence of `rows`: [begin, end), with counts the first or, from_end, the last
// counts[b] of them; with shortened starts those of documents with a slot.
struct RowSet {
  int64_t rows = 0, begin = 0, end = 0;
  const int32_t* counts = nullptr;
  bool from_end = false;
  const int32_t* shortened = nullptr;
};

// lse[batch, heads, rows], of the set's [begin, end): packed [batch, heads, end - begin].
void copy_lse(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, int64_t heads,
              const float* lse, float* packed);

// The results of a call for the rows of the set: part [batch * rows, heads * D] bf16, part_lse
// packed as above. They become total (f32) and lse [batch, heads, rows], or are merged into them:
// lse = log(exp(lse) + exp(part_lse)), total = the mean of both, weighted by exp(. - lse).
void merge_part(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, int64_t heads,
                bool first, const Matrix& part, const float* part_lse, const Matrix& total,
                float* lse);

// sum (f32) (+)= part (bf16) in the rows of the set; the others are zero, or left alone when
// adding.
void add_part(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, bool add,
              const Matrix& part, const Matrix& sum);

}  // namespace tutti::engine
