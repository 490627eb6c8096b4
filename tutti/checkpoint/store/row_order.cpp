#include "tutti/checkpoint/store/row_order.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/check.h"

namespace tutti::checkpoint {
namespace {

constexpr int64_t kTile = 32;  // tiles of both matrices stay in the first-level cache

template <size_t Bytes>
void transpose(const RowSource& source, int64_t begin, int64_t end, char* to) {
  for (int64_t row_tile = begin; row_tile < end; row_tile += kTile) {
    const int64_t row_end = std::min(end, row_tile + kTile);
    for (int64_t tile = 0; tile < source.columns; tile += kTile) {
      const int64_t column_end = std::min(source.columns, tile + kTile);
      for (int64_t row = row_tile; row < row_end; ++row) {
        for (int64_t column = tile; column < column_end; ++column) {
          std::memcpy(to + ((row - begin) * source.columns + column) * int64_t{Bytes},
                      source.data + (column * source.rows + row) * int64_t{Bytes}, Bytes);
        }
      }
    }
  }
}

// Several matrices, or one whose rows or columns are in another order besides.
template <size_t Bytes>
void transpose_each(const RowSource& source, int64_t begin, int64_t end, char* to) {
  const int64_t height = source.rows / source.matrices;
  const bool of_columns = source.pairs == RowOrder::half_to_interleaved;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t matrix = row / height;
    const int64_t in_matrix = row % height;
    const int64_t i = of_columns ? in_matrix : source_row(source.pairs, height, in_matrix, height);
    const char* from = source.data + matrix * source.columns * height * int64_t{Bytes};
    for (int64_t column = 0; column < source.columns; ++column) {
      const int64_t j =
          of_columns ? source_row(source.pairs, source.columns, column, source.columns) : column;
      std::memcpy(to, from + (j * height + i) * int64_t{Bytes}, Bytes);
      to += Bytes;
    }
  }
}

}  // namespace

int64_t source_row(RowOrder order, int64_t head_dim, int64_t row, int64_t rotated,
                   bool rotated_last) {
  if (order == RowOrder::same) return row;
  const int64_t turned = rotated > 0 ? rotated : head_dim;
  const int64_t half = turned / 2;
  const int64_t head = row / head_dim * head_dim;
  int64_t in_head = row - head;
  if (rotated_last && order == RowOrder::interleaved_to_half) {  // from a file
    if (in_head >= turned) return row - turned;
    return head + (head_dim - turned) + in_head % half * 2 + in_head / half;
  }
  if (rotated_last) {
    if (in_head < head_dim - turned) return row + turned;
    in_head -= head_dim - turned;
  }
  if (in_head >= turned) return row;
  if (order == RowOrder::interleaved_to_half) return head + in_head % half * 2 + in_head / half;
  return head + in_head % 2 * half + in_head / 2;
}

void gather_rows(const RowSource& source, int64_t begin, int64_t end, char* to) {
  TUTTI_CHECK(0 <= begin && begin <= end && end <= source.rows, "rows {} to {} of {}", begin, end,
              source.rows);
  if (source.order == RowOrder::transposed) {
    TUTTI_CHECK(source.element_bytes == 2 || source.element_bytes == 4, "elements of {} bytes",
                source.element_bytes);
    if (source.matrices > 1 || source.pairs != RowOrder::same) {
      TUTTI_CHECK(source.matrices > 0 && source.rows % source.matrices == 0,
                  "{} rows of {} matrices", source.rows, source.matrices);
      return source.element_bytes == 2 ? transpose_each<2>(source, begin, end, to)
                                       : transpose_each<4>(source, begin, end, to);
    }
    return source.element_bytes == 2 ? transpose<2>(source, begin, end, to)
                                     : transpose<4>(source, begin, end, to);
  }
  TUTTI_CHECK(source.order == RowOrder::same ||
                  ((source.rotated > 0 ? source.rotated : source.head_dim) % 2 == 0 &&
                   source.rows % source.head_dim == 0),
              "{} rows in heads of {}", source.rows, source.head_dim);
  const int64_t row_bytes = source.columns * source.element_bytes;
  if (row_bytes == 0) return;
  for (int64_t row = begin; row < end; ++row) {
    std::memcpy(to + (row - begin) * row_bytes,
                source.data + source_row(source.order, source.head_dim, row, source.rotated,
                                         source.rotated_last) *
                                  row_bytes,
                static_cast<size_t>(row_bytes));
  }
}

}  // namespace tutti::checkpoint
