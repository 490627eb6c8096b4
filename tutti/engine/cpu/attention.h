// The loops of all attention operations (attend.h).
#pragma once

#include <cstdint>

#include "tutti/engine/attend.h"
#include "tutti/engine/carver.h"
#include "tutti/engine/cpu/attention_tile.h"
#include "tutti/engine/cpu/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// A row's result depends only on its own query and keys, not on the number of threads or on the
// other queries of the call.
void attend(CpuStream& stream, const Attend& args);
void attend_backward(CpuStream& stream, const AttendBackward& args);

// Rows [first, first + rows) of head `head`.
inline TileSource head_rows(const Matrix& matrix, int64_t first, int64_t rows, int64_t head,
                            int64_t head_dim) {
  const int64_t offset = first * matrix.ld + head * head_dim;
  const char* data = static_cast<const char*>(matrix.data) + offset * dtype_bytes(matrix.dtype);
  return {data, matrix.ld, rows, head_dim};
}

}  // namespace tutti::engine
