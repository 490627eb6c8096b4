// The steps between attention operations and calls of the fused kernels (sdpa.h): selecting the
// rows of a call, and merging its results. Everything is computed on the device, so that a captured
// graph works for any documents.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tutti/base/attention_workspace.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Offsets of the batch elements in an operand with rows of `ld` elements.
struct RowTable {
  int64_t ld = 0;
  int32_t* offsets = nullptr;  // [elements + 1], ascending
};
inline constexpr int kRowTables = 7;
using RowTables = std::array<RowTable, kRowTables>;  // those without offsets are not written

// The slots of a length class of documents, [batch * size.slots]: empty slots have length 0.
struct DocumentSlots {
  DocumentClass size;
  int32_t* lengths = nullptr;
  RowTables tables;
};

// Finds the documents from starts[batch * tokens] (engine/attention_ops.h). A document is a run of
// rows whose start is its first row, and that no later row attends to. Documents of more than
// kShortDocument rows go into the slots of their class. The others are left to the plain kernels:
// shortened[batch * tokens] holds the starts of their rows, and for rows of a document with a slot
// the end of that document, so that they attend to nothing and tiles of only such rows are skipped.
void find_documents(CudaStream& stream, const char* op, int64_t batch, int64_t tokens,
                    const int32_t* starts, int32_t* shortened,
                    const std::vector<DocumentSlots>& classes);

// For keys of another rank in ring attention: at most one document of a sequence spans both ranks.
// Queries [first_query, first_query + queries[b]) attend to the last keys[b] of the key_count keys.
struct SharedDocument {
  int32_t *queries = nullptr, *keys = nullptr;  // [batch]
  RowTables query_tables, key_tables;
};
void find_shared_document(CudaStream& stream, const char* op, int64_t batch, int64_t rows,
                          int64_t first_query, int64_t key_count, const int32_t* starts,
                          const SharedDocument& found);

// Copies the log-sum-exp of the documents of a class between packed [slots, heads, most_tokens] and
// lse [batch, heads, tokens]. Packed rows beyond a document are zero.
void unpack_lse(CudaStream& stream, const char* op, const DocumentSlots& slots, int64_t batch,
                int64_t tokens, int64_t heads, const float* packed, float* lse);
void pack_lse(CudaStream& stream, const char* op, const DocumentSlots& slots, int64_t batch,
              int64_t tokens, int64_t heads, const float* lse, float* packed);

// A subset of the `rows` rows of a sequence: [begin, end), with counts the first or, with from_end,
// the last counts[b] of them; with `shortened` the rows of documents with a slot.
struct RowSet {
  int64_t rows = 0, begin = 0, end = 0;
  const int32_t* counts = nullptr;
  bool from_end = false;
  const int32_t* shortened = nullptr;
};

// Copies lse[batch, heads, rows] of the set's [begin, end) to packed [batch, heads, end - begin].
void copy_lse(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, int64_t heads,
              const float* lse, float* packed);

// Merges the results of a call for the rows of the set, part [batch * rows, heads * D] bf16 and
// part_lse packed as above, into total (f32) and lse [batch, heads, rows], or stores them if
// `first`: lse = log(exp(lse) + exp(part_lse)), total = the mean of both, weighted by exp(. - lse).
void merge_part(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, int64_t heads,
                bool first, const Matrix& part, const float* part_lse, const Matrix& total,
                float* lse);

// sum (f32) (+)= part (bf16) in the rows of the set; other rows are zeroed, or not written when
// adding.
void add_part(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, bool add,
              const Matrix& part, const Matrix& sum);

}  // namespace tutti::engine
