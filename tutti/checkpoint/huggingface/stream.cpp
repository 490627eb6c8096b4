#include "tutti/checkpoint/huggingface/stream.h"

#include <algorithm>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/checkpoint/store/elements.h"

namespace tutti::checkpoint {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

// [shape[0], product of the rest].
RowSource matrix_of(const HfPart& part, DType type, const char* data) {
  TUTTI_CHECK(!part.shape.empty(), "tensor {} is a scalar", part.name);
  RowSource rows;
  rows.data = data;
  rows.element_bytes = dtype_bytes(type);
  rows.rows = part.shape[0];
  rows.columns = 1;
  for (size_t d = 1; d < part.shape.size(); ++d) rows.columns *= part.shape[d];
  return rows;
}

RowSource rows_of(const HfPart& part, DType type, const char* data, RowOrder rotary,
                  RopeLayout layout, int64_t head_dim) {
  RowSource rows = matrix_of(part, type, data);
  if (part.rotary && (part.interleaved || layout == RopeLayout::interleaved)) {
    rows.order = rotary;
    rows.head_dim = part.head_rows > 0 ? part.head_rows : head_dim;
    rows.rotated = part.rotated;
    rows.rotated_last = part.rotated_last;
  }
  return rows;
}

// A tensor of all experts, with outputs as columns.
RowSource stacked_rows(const HfPart& part, DType type, const char* data, bool to_ours) {
  const RowOrder order = to_ours ? RowOrder::interleaved_to_half : RowOrder::half_to_interleaved;
  const int64_t outputs = part.shape.back();
  RowSource rows;
  rows.data = data;
  rows.element_bytes = dtype_bytes(type);
  if (part.shape.size() == 2) {  // biases
    rows.rows = part.shape[0] * outputs;
    rows.columns = 1;
    rows.head_dim = outputs;
    if (part.alternating) rows.order = order;
    return rows;
  }
  TUTTI_CHECK(part.shape.size() == 3, "tensor {} of experts has {} dimensions", part.name,
              part.shape.size());
  rows.rows = part.shape[0] * (to_ours ? outputs : part.shape[1]);
  rows.columns = to_ours ? part.shape[1] : outputs;
  rows.order = RowOrder::transposed;
  rows.matrices = part.shape[0];
  if (part.alternating) rows.pairs = order;
  return rows;
}

}  // namespace

RowSource rows_to_ours(const HfPart& part, DType type, const char* data, RopeLayout layout,
                       int64_t head_dim) {
  if (part.stacked) return stacked_rows(part, type, data, true);
  RowSource rows = rows_of(part, type, data, RowOrder::interleaved_to_half, layout, head_dim);
  if (part.transposed) {
    std::swap(rows.rows, rows.columns);
    rows.order = RowOrder::transposed;
  }
  return rows;
}

RowSource rows_from_ours(const HfPart& part, DType type, const char* data, RopeLayout layout,
                         int64_t head_dim) {
  if (part.stacked) return stacked_rows(part, type, data, false);
  RowSource rows = rows_of(part, type, data, RowOrder::half_to_interleaved, layout, head_dim);
  if (part.transposed) rows.order = RowOrder::transposed;
  return rows;
}

void stream_tensor(const StreamedTensor& tensor, const AppendBytes& append) {
  const RowSource& rows = tensor.rows;
  const int64_t row_bytes = rows.columns * rows.element_bytes;
  const int64_t all_bytes = rows.rows * row_bytes;
  if (all_bytes == 0) return;
  // The limit on rows also splits a long row (a vector is rows of one element).
  const int64_t at_once = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, rows.rows);
  std::vector<char> gathered;
  std::vector<char> converted(static_cast<size_t>(at_once * rows.columns * dtype_bytes(tensor.to)));
  if (rows.order != RowOrder::same) gathered.resize(static_cast<size_t>(at_once * row_bytes));
  for (int64_t row = 0; row < rows.rows; row += at_once) {
    const int64_t end = std::min(rows.rows, row + at_once);
    const char* from = rows.data + row * row_bytes;
    if (rows.order != RowOrder::same) {
      gather_rows(rows, row, end, gathered.data());
      from = gathered.data();
    }
    const int64_t count = (end - row) * rows.columns;
    convert_elements(tensor.from, from, tensor.to, converted.data(), count, tensor.name,
                     row * rows.columns);
    append(converted.data(), count * dtype_bytes(tensor.to));
    if (!tensor.read) continue;
    // Transposed, every piece reads from the whole source. Permuted rows stay within a head.
    const bool passed = rows.order != RowOrder::transposed || end == rows.rows;
    const int64_t heads = rows.head_dim > 0 ? end / rows.head_dim * rows.head_dim : end;
    tensor.read(passed ? heads * row_bytes : 0);
  }
}

}  // namespace tutti::checkpoint
