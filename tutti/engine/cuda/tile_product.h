// Tile products in shared memory, for kernels whose blocks each compute one tile: bf16 on tensor
// cores (WMMA 16 x 16 x 16, f32 sums) with tiles of 128 x 128 x 32, f32 on CUDA cores with 64 x 64
// x 16. The next operands are loaded into registers while those in shared memory are multiplied.
// Only for .cu files.
#pragma once

#include <mma.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tutti/engine/cuda/vectors.h"

namespace tutti::engine::tile {

constexpr int kThreads = 256;

template <typename T>
struct TileShape;
template <>
struct TileShape<bf16> {
  static constexpr int kEdge = 128, kDepth = 32;
};
template <>
struct TileShape<float> {
  static constexpr int kEdge = 64, kDepth = 16;
};

// An operand in memory: [rows, cols] from data on; elements outside read as zero.
template <typename T>
struct Operand {
  const T* data;
  int64_t ld, rows, cols;
};

// Copies one R x C tile of an operand from global to shared memory, through registers. Rows in
// shared memory are padded by 16 bytes to avoid bank conflicts.
template <typename T, int R, int C>
struct TileLoader {
  static constexpr int kElements = 16 / sizeof(T);
  static constexpr int kStride = C + kElements;
  static constexpr int kCount = R * C / kElements / kThreads;
  static_assert(R * C % (kElements * kThreads) == 0);
  uint4 pieces[kCount];

  __device__ void load(const Operand<T>& from, int64_t first_row, int64_t first_col, bool wide) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = (i * kThreads + static_cast<int>(threadIdx.x)) * kElements;
      const int64_t row = first_row + at / C;
      const int64_t col = first_col + at % C;
      const T* p = from.data + row * from.ld + col;
      pieces[i] = make_uint4(0, 0, 0, 0);
      if (row >= from.rows) continue;
      if (wide && col + kElements <= from.cols) {
        pieces[i] = *reinterpret_cast<const uint4*>(p);
        continue;
      }
      T parts[kElements] = {};
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        if (col + e < from.cols) parts[e] = p[e];
      }
      memcpy(&pieces[i], parts, sizeof parts);
    }
  }
  __device__ void store(T* tile) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = (i * kThreads + static_cast<int>(threadIdx.x)) * kElements;
      *reinterpret_cast<uint4*>(tile + at / C * kStride + at % C) = pieces[i];
    }
  }
};

// Accumulators of a tile on tensor cores: 8 warps, each 64 x 32.
template <bool a_transposed, bool b_transposed>
struct TensorCoreSums {
  static constexpr int kRows = 4, kCols = 2;
  using ALayout =
      std::conditional_t<a_transposed, nvcuda::wmma::col_major, nvcuda::wmma::row_major>;
  using BLayout =
      std::conditional_t<b_transposed, nvcuda::wmma::col_major, nvcuda::wmma::row_major>;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums[kRows][kCols];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) nvcuda::wmma::fill_fragment(sums[i][j], 0.0F);
    }
  }
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / 32 / 4 * 64; }
  __device__ static int first_col() { return static_cast<int>(threadIdx.x) / 32 % 4 * 32; }

  template <int a_stride, int b_stride, int depth>
  __device__ void add(const bf16* a_tile, const bf16* b_tile) {
    const auto* a = reinterpret_cast<const __nv_bfloat16*>(a_tile);
    const auto* b = reinterpret_cast<const __nv_bfloat16*>(b_tile);
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16, ALayout>
          left[kRows];
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16, BLayout>
          right[kCols];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int m = first_row() + 16 * i;
        nvcuda::wmma::load_matrix_sync(
            left[i], a_transposed ? a + k * a_stride + m : a + m * a_stride + k, a_stride);
      }
#pragma unroll
      for (int j = 0; j < kCols; ++j) {
        const int n = first_col() + 16 * j;
        nvcuda::wmma::load_matrix_sync(
            right[j], b_transposed ? b + n * b_stride + k : b + k * b_stride + n, b_stride);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kCols; ++j) {
          nvcuda::wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
        }
      }
    }
  }

  // Calls body(row, first column, 8 sums) for all sums of the tile, through `scratch` [8][16][16]
  // in shared memory, which must no longer be in use.
  template <typename Body>
  __device__ void for_each(float* scratch, const Body& body) {
    float* mine = scratch + threadIdx.x / 32 * 256;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) {
        nvcuda::wmma::store_matrix_sync(mine, sums[i][j], 16, nvcuda::wmma::mem_row_major);
        __syncwarp();
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = mine[lane * 8 + e];
        __syncwarp();
        body(first_row() + 16 * i + lane / 2, first_col() + 16 * j + lane % 2 * 8, v);
      }
    }
  }
};

// The same in f32 on CUDA cores: 16 x 16 threads, each 4 x 4.
template <bool a_transposed, bool b_transposed>
struct CudaCoreSums {
  float sums[4][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = 0;
    }
  }
  __device__ static int row() { return static_cast<int>(threadIdx.x) / 16 * 4; }
  __device__ static int col() { return static_cast<int>(threadIdx.x) % 16 * 4; }

  template <int a_stride, int b_stride, int depth>
  __device__ void add(const float* a, const float* b) {
#pragma unroll
    for (int k = 0; k < depth; ++k) {
      float left[4];
      float right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = a_transposed ? a[k * a_stride + row() + i] : a[(row() + i) * a_stride + k];
        right[i] = b_transposed ? b[(col() + i) * b_stride + k] : b[k * b_stride + col() + i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
      }
    }
  }
  template <typename Body>
  __device__ void for_each(float* /*scratch*/, const Body& body) {
#pragma unroll
    for (int i = 0; i < 4; ++i) body(row() + i, col(), sums[i]);
  }
};

template <typename T, bool a_transposed, bool b_transposed>
using Sums = std::conditional_t<std::is_same_v<T, bf16>, TensorCoreSums<a_transposed, b_transposed>,
                                CudaCoreSums<a_transposed, b_transposed>>;

// Products of tiles of A [m, k] and B [k, n], each stored as is or transposed ([k, m], [n, k]).
template <typename T, bool a_transposed, bool b_transposed>
struct Product {
  static constexpr int kEdge = TileShape<T>::kEdge;
  static constexpr int kDepth = TileShape<T>::kDepth;
  using ALoader = TileLoader<T, a_transposed ? kDepth : kEdge, a_transposed ? kEdge : kDepth>;
  using BLoader = TileLoader<T, b_transposed ? kEdge : kDepth, b_transposed ? kDepth : kEdge>;
  static constexpr int kATile = (a_transposed ? kDepth : kEdge) * ALoader::kStride;
  static constexpr int kBTile = (b_transposed ? kEdge : kDepth) * BLoader::kStride;
  static constexpr int kBytes = 2 * (kATile + kBTile) * static_cast<int>(sizeof(T));
  static_assert(kBytes >= 8 * 256 * static_cast<int>(sizeof(float)));

  // sums += rows [m, m + edge) of A times columns [n, n + edge) of B over `depth`.
  __device__ static void add(Sums<T, a_transposed, b_transposed>& sums, const Operand<T>& a,
                             int64_t m, const Operand<T>& b, int64_t n, int64_t depth, bool wide_a,
                             bool wide_b, T* shared) {
    T* a_tiles[2] = {shared, shared + kATile};
    T* b_tiles[2] = {shared + 2 * kATile, shared + 2 * kATile + kBTile};
    ALoader a_next;
    BLoader b_next;
    const auto load = [&](int64_t k) {
      a_next.load(a, a_transposed ? k : m, a_transposed ? m : k, wide_a);
      b_next.load(b, b_transposed ? n : k, b_transposed ? k : n, wide_b);
    };
    load(0);
    int buffer = 0;
    __syncthreads();  // an earlier call may still read the tiles
    for (int64_t k = 0; k < depth; k += kDepth) {
      a_next.store(a_tiles[buffer]);
      b_next.store(b_tiles[buffer]);
      __syncthreads();
      if (k + kDepth < depth) load(k + kDepth);
      sums.template add<ALoader::kStride, BLoader::kStride, kDepth>(a_tiles[buffer],
                                                                    b_tiles[buffer]);
      buffer ^= 1;
    }
  }
};

}  // namespace tutti::engine::tile
