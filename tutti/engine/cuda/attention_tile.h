// Tiles of the plain attention kernels: 16 x 16 threads; thread (x, y) owns the elements in rows y
// + 16 i and columns x + 16 j of every product. Operands are f32 in shared memory, with rows padded
// by one float to avoid bank conflicts. Only for .cu files.
#pragma once

#include <cstdint>

#include "tutti/engine/cuda/vectors.h"

namespace tutti::engine {

inline constexpr int kTileEdge = 16;
inline constexpr int kTileThreads = kTileEdge * kTileEdge;

__device__ inline int tile_x() { return threadIdx.x % kTileEdge; }
__device__ inline int tile_y() { return threadIdx.x / kTileEdge; }

// tile[r][c] = source row first + r, column c of `dim`, times scale; rows from `end` on are zero.
template <int rows, typename T>
__device__ inline void load_tile(const Rows<const T>& source, int64_t first, int64_t end, int dim,
                                 float* tile) {
  const int stride = dim + 1;
  for (int at = threadIdx.x; at < rows * dim; at += kTileThreads) {
    const int r = at / dim;
    const int c = at % dim;
    tile[r * stride + c] = first + r < end ? widen(source.row(first + r)[c]) : 0;
  }
}

// products[i][j] += a[y + 16 i][:] . b[x + 16 j][:] over dim columns.
template <int M>
__device__ inline void multiply_rows(const float* a, const float* b, int dim,
                                     float (&products)[M][M]) {
  const int stride = dim + 1;
  const float* a_row = a + tile_y() * stride;
  const float* b_row = b + tile_x() * stride;
#pragma unroll 4
  for (int c = 0; c < dim; ++c) {
    float left[M];
    float right[M];
#pragma unroll
    for (int i = 0; i < M; ++i) left[i] = a_row[i * kTileEdge * stride + c];
#pragma unroll
    for (int j = 0; j < M; ++j) right[j] = b_row[j * kTileEdge * stride + c];
#pragma unroll
    for (int i = 0; i < M; ++i) {
#pragma unroll
      for (int j = 0; j < M; ++j) products[i][j] += left[i] * right[j];
    }
  }
}

// sums[i][c] += sum over k < 16 M of p(y + 16 i, k) * b[k][x + 16 c], where p is a square tile of
// edge 16 M with rows padded by one float, read transposed if `transposed`; columns from dim on are
// not written.
template <int M, int C, bool transposed>
__device__ inline void multiply_tile(const float* p, const float* b, int dim, float (&sums)[M][C]) {
  constexpr int kEdge = kTileEdge * M;
  constexpr int kStride = kEdge + 1;
  const int stride = dim + 1;
#pragma unroll 4
  for (int k = 0; k < kEdge; ++k) {
    float left[M];
#pragma unroll
    for (int i = 0; i < M; ++i) {
      const int row = tile_y() + kTileEdge * i;
      left[i] = transposed ? p[k * kStride + row] : p[row * kStride + k];
    }
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = tile_x() + kTileEdge * c;
      if (column >= dim) continue;
      const float right = b[k * stride + column];
#pragma unroll
      for (int i = 0; i < M; ++i) sums[i][c] += left[i] * right;
    }
  }
}

// Reduces over the 16 threads that share rows.
template <typename Combine>
__device__ inline float reduce_row(float x, const Combine& combine) {
#pragma unroll
  for (int apart = kTileEdge / 2; apart > 0; apart /= 2) {
    x = combine(x, __shfl_xor_sync(0xffffffffU, x, apart));
  }
  return x;
}

}  // namespace tutti::engine
