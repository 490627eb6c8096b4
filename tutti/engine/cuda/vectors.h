// Rows in pieces of V elements: vector loads and stores of up to 16 bytes if the memory is aligned,
// else element by element. The elements of a piece do not depend on alignment, so neither do the
// bits of a sum. Only for .cu files.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tutti/base/check.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
// To nearest even; NaN stays NaN.
__device__ inline void narrow(float x, float& out) { out = x; }
__device__ inline void narrow(float x, bf16& out) {
  out.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

// ---- Pieces -------------------------------------------------------------------------------------

template <int bytes>
struct WordOf;
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

// out = p[0 .. V), p aligned to min(16, V * sizeof(T)).
template <int V, typename T>
__device__ inline void load_aligned(const T* p, float (&out)[V]) {
  constexpr int kBytes = V * static_cast<int>(sizeof(T)) < 16 ? V * sizeof(T) : 16;
  constexpr int kElements = kBytes / static_cast<int>(sizeof(T));
  using Word = typename WordOf<kBytes>::Type;
  static_assert(V % kElements == 0);
#pragma unroll
  for (int w = 0; w < V / kElements; ++w) {
    const Word word = reinterpret_cast<const Word*>(p)[w];
    T parts[kElements];
    memcpy(parts, &word, kBytes);
#pragma unroll
    for (int i = 0; i < kElements; ++i) out[w * kElements + i] = widen(parts[i]);
  }
}
template <int V, typename T>
__device__ inline void store_aligned(const float (&in)[V], T* p) {
  constexpr int kBytes = V * static_cast<int>(sizeof(T)) < 16 ? V * sizeof(T) : 16;
  constexpr int kElements = kBytes / static_cast<int>(sizeof(T));
  using Word = typename WordOf<kBytes>::Type;
#pragma unroll
  for (int w = 0; w < V / kElements; ++w) {
    T parts[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) narrow(in[w * kElements + i], parts[i]);
    Word word;
    memcpy(&word, parts, kBytes);
    reinterpret_cast<Word*>(p)[w] = word;
  }
}

// The same for a piece with `count` valid elements (any number; all if V or more); the others read
// as `fill` and are not written.
template <int V, bool wide, typename T>
__device__ inline void load_piece(const T* p, int64_t count, float fill, float (&out)[V]) {
  if (wide && count >= V) {
    load_aligned<V>(p, out);
    return;
  }
#pragma unroll
  for (int i = 0; i < V; ++i) out[i] = i < count ? widen(p[i]) : fill;
}
template <int V, bool wide, typename T>
__device__ inline void store_piece(const float (&in)[V], T* p, int64_t count) {
  if (wide && count >= V) {
    store_aligned<V>(in, p);
    return;
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (i < count) narrow(in[i], p[i]);
  }
}

// Elements of a piece whose widest element type fills 16 bytes.
template <typename... T>
inline constexpr int kPieceOf = 16 / static_cast<int>(std::max({sizeof(T)...}));

// Whether pieces of `piece` elements of every row are aligned for vector loads. True for an absent
// operand.
inline bool wide_rows(int piece, const Matrix& m) {
  const int64_t size = dtype_bytes(m.dtype);
  const int64_t alignment = std::min<int64_t>(16, piece * size);
  return reinterpret_cast<uintptr_t>(m.data) % static_cast<uintptr_t>(alignment) == 0 &&
         (m.rows <= 1 || m.ld * size % alignment == 0);
}
inline bool wide_rows(int piece, const Vector& v) {
  return wide_rows(piece, Matrix{v.data, v.dtype, 1, v.count, v.count});
}
template <typename... Operands>
bool all_wide(int piece, const Operands&... operands) {
  return (wide_rows(piece, operands) && ...);
}

// ---- Covering a matrix --------------------------------------------------------------------------

// A launch with a thread for every piece of every row; threads of a block cover consecutive pieces
// of a row, as far as it is long.
struct RowCover {
  dim3 grid, block;
};
inline RowCover cover_rows(int64_t rows, int64_t cols, int piece) {
  constexpr unsigned kThreads = 256;
  constexpr int64_t kGridRows = 65535;
  const int64_t pieces = (cols + piece - 1) / piece;
  unsigned width = 1;
  while (width < kThreads && width < pieces) width *= 2;
  const unsigned height = kThreads / width;
  return {dim3(static_cast<unsigned>((pieces + width - 1) / width),
               static_cast<unsigned>(std::min((rows + height - 1) / height, kGridRows))),
          dim3(width, height)};
}

// Calls body(row, column, remaining elements) for the pieces of this thread, for a grid of
// cover_rows.
template <int V, typename Body>
__device__ inline void for_pieces(int64_t rows, int64_t cols, const Body& body) {
  const int64_t j = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (j >= cols) return;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t r = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; r < rows;
       r += stride) {
    body(r, j, cols - j);
  }
}

// A matrix as a kernel argument.
template <typename T>
struct Rows {
  T* data;
  int64_t ld;
  __device__ T* row(int64_t r) const { return data + r * ld; }
  __device__ explicit operator bool() const { return data != nullptr; }
};
template <typename T>
Rows<T> rows_of(const Matrix& m) {
  return {m ? m.as<std::remove_const_t<T>>() : nullptr, m.ld};
}
template <typename T>
T* data_of(const Vector& v) {
  return v ? v.as<std::remove_const_t<T>>() : nullptr;
}

// ---- Choosing a kernel --------------------------------------------------------------------------

// Calls body(T()) with the element type.
template <typename Body>
void with_dtype(DType dtype, const Body& body) {
  TUTTI_CHECK(dtype == DType::f32 || dtype == DType::bf16, "no kernel for {}", dtype_name(dtype));
  if (dtype == DType::bf16) {
    body(bf16());
  } else {
    body(float());
  }
}
// Calls body(std::true_type()) or body(std::false_type()).
template <typename Body>
void with_flag(bool flag, const Body& body) {
  if (flag) {
    body(std::true_type());
  } else {
    body(std::false_type());
  }
}

}  // namespace tutti::engine
