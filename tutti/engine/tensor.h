// Non-owning views of memory: a pointer, an element type and a shape. The memory belongs to an
// Arena (arena.h).
#pragma once

#include <cstdint>

#include "tutti/base/check.h"
#include "tutti/base/dtype.h"

namespace tutti::engine {

// DType of an element type of kernels.
template <typename T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;

// `count` contiguous elements.
struct Vector {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t count = 0;

  explicit operator bool() const { return data != nullptr; }
  int64_t bytes() const { return count * dtype_bytes(dtype); }

  template <typename T>
  T* as() const {
    TUTTI_CHECK(dtype == dtype_of<T>, "vector of {} read as {}", dtype_name(dtype),
                dtype_name(dtype_of<T>));
    return static_cast<T*>(data);
  }
};

// Row-major [rows, cols]; consecutive rows start `ld` elements apart (ld >= cols).
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;

  explicit operator bool() const { return data != nullptr; }
  // Bytes of the elements, without the padding between rows.
  int64_t bytes() const { return rows * cols * dtype_bytes(dtype); }

  template <typename T>
  T* as() const {
    TUTTI_CHECK(dtype == dtype_of<T>, "matrix of {} read as {}", dtype_name(dtype),
                dtype_name(dtype_of<T>));
    return static_cast<T*>(data);
  }
  template <typename T>
  T* row(int64_t index) const {
    return as<T>() + index * ld;
  }

  // Rows [first, first + count).
  Matrix slice_rows(int64_t first, int64_t count) const {
    TUTTI_CHECK(first >= 0 && count >= 0 && first + count <= rows, "rows {}+{} of {}", first, count,
                rows);
    Matrix out = *this;
    out.data = static_cast<char*>(data) + first * ld * dtype_bytes(dtype);
    out.rows = count;
    return out;
  }
  // Columns [first, first + count).
  Matrix slice_cols(int64_t first, int64_t count) const {
    TUTTI_CHECK(first >= 0 && count >= 0 && first + count <= cols, "columns {}+{} of {}", first,
                count, cols);
    Matrix out = *this;
    out.data = static_cast<char*>(data) + first * dtype_bytes(dtype);
    out.cols = count;
    return out;
  }
};

inline Matrix matrix(void* data, DType dtype, int64_t rows, int64_t cols, int64_t ld = 0) {
  return {data, dtype, rows, cols, ld == 0 ? cols : ld};
}
inline Vector vector(void* data, DType dtype, int64_t count) { return {data, dtype, count}; }

}  // namespace tutti::engine
