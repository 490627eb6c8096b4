// Reordering of the rows of a weight matrix read from a file.
//
// Rotary positions turn pairs of elements of a head (D elements). Which two make a pair is a matter
// of layout: `half` pairs i with i + D/2 (Hugging Face, and Tutti), `interleaved` 2i with 2i + 1
// (Meta's original Llama). Reordering the rows of the query and key weights within each head leads
// from one to the other: row j D/2 + i of half is row 2i + j of interleaved, j in {0, 1}.
#pragma once

#include <cstdint>

namespace tutti::checkpoint {

enum class RowOrder { same, transposed, interleaved_to_half, half_to_interleaved };

// A matrix [rows, columns] as it is wanted, and where its elements are. With `transposed` the
// source is [columns, rows], or `matrices` of them one below the other where the wanted rows are of
// as many matrices; `pairs` then says in which order it has its rows (interleaved_to_half) or its
// columns (half_to_interleaved), which are those of one head. A vector is a matrix of one column.
struct RowSource {
  const char* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t element_bytes = 4;  // 2 or 4
  RowOrder order = RowOrder::same;
  int64_t head_dim = 0;       // rows of a head, for the two orders of rotary pairs; divides `rows`
  int64_t rotated = 0;        // first rows of a head that make pairs, the others stay; 0: all
  bool rotated_last = false;  // in files they are the last rows of a head; ours come first
  int64_t matrices = 1;
  RowOrder pairs = RowOrder::same;
};

// The row of the source that is row `row` of the wanted matrix; not for `transposed`. rotated as
// above.
int64_t source_row(RowOrder order, int64_t head_dim, int64_t row, int64_t rotated = 0,
                   bool rotated_last = false);

// Writes rows [begin, end) of the wanted matrix.
void gather_rows(const RowSource& source, int64_t begin, int64_t end, char* to);

}  // namespace tutti::checkpoint
