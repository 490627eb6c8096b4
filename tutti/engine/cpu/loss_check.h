// What the cross-entropies demand of their operands.
#pragma once

#include <cstdint>

#include "tutti/base/check.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Sizes, and that a gradient over its logits leaves those that are still to be read.
inline void check_loss_memory(const char* op, const Matrix& logits, int64_t vocabulary,
                              const Vector& targets, const Vector& loss, const Matrix& d) {
  const int64_t n = logits.rows;
  TUTTI_CHECK(targets.count == n && loss.count == n && (!d || d.rows == n),
              "{}: {} rows, {} targets, {} losses, {} gradients", op, n, targets.count, loss.count,
              d.rows);
  TUTTI_CHECK(vocabulary <= logits.cols && (!d || vocabulary <= d.cols),
              "{}: vocabulary {} in {} and {} columns", op, vocabulary, logits.cols, d.cols);
  if (d && d.data == logits.data) {
    const int64_t row_bytes = logits.ld * dtype_bytes(logits.dtype);
    TUTTI_CHECK(dtype_bytes(d.dtype) <= dtype_bytes(logits.dtype) &&
                    d.ld * dtype_bytes(d.dtype) == row_bytes,
                "{}: gradient {} with ld {} over logits {} with ld {}", op, dtype_name(d.dtype),
                d.ld, dtype_name(logits.dtype), logits.ld);
  }
}

inline void check_targets(const char* op, const Vector& targets, int64_t vocabulary) {
  for (int64_t r = 0; r < targets.count; ++r) {
    const int64_t target = targets.as<int32_t>()[r];
    TUTTI_CHECK(target < vocabulary, "{}: target {} of row {} is not below {}", op, target, r,
                vocabulary);
  }
}

inline void check_loss_rows(const char* op, const Matrix& logits, int64_t vocabulary,
                            const Vector& targets, const Vector& loss, const Matrix& d) {
  check_loss_memory(op, logits, vocabulary, targets, loss, d);
  check_targets(op, targets, vocabulary);
}

}  // namespace tutti::engine
