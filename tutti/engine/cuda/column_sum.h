// Sums over the rows of a matrix in two steps, without atomics: first blocks of rows, each by
// kColumnThreads x kRowThreads threads, then over the blocks in order. The blocks depend only on
// the shape, so results are bitwise equal on every GPU. Only for .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {

inline constexpr int kColumnThreads = 32;
inline constexpr int kRowThreads = 8;

struct RowBlocks {
  int64_t count = 0;  // blocks
  int64_t rows = 0;   // per block; the last may have fewer
};
// For a grid with `column_blocks` blocks per row of blocks: about a thousand blocks in total, of 32
// rows or more.
inline RowBlocks row_blocks(int64_t rows, int64_t column_blocks) {
  constexpr int64_t kBlocks = 1056;
  constexpr int64_t kFewestRows = 32;
  if (rows == 0 || column_blocks == 0) return {};
  const int64_t most = (rows + kFewestRows - 1) / kFewestRows;
  const int64_t wanted = std::clamp<int64_t>(kBlocks / column_blocks, 1, most);
  const int64_t each = (rows + wanted - 1) / wanted;
  return {(rows + each - 1) / each, each};
}

// out[j] = beta * out[j] + sum over blocks of partials[block * stride + j], j < columns. beta 0
// does not read out.
void add_partials(CudaStream& stream, const char* op, const float* partials, int64_t blocks,
                  int64_t stride, int64_t columns, float beta, float* out);

#ifdef __CUDACC__
// For a block of kColumnThreads x kRowThreads threads, each with sums of V columns: reduces over
// threadIdx.y, in order, into the threads with threadIdx.y = 0.
template <int V>
__device__ inline void sum_row_threads(float (&sums)[V]) {
  __shared__ float parts[kRowThreads][V][kColumnThreads];
  __syncthreads();  // the previous call may still read parts
#pragma unroll
  for (int i = 0; i < V; ++i) parts[threadIdx.y][i][threadIdx.x] = sums[i];
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    for (int y = 1; y < kRowThreads; ++y) sums[i] += parts[y][i][threadIdx.x];
  }
}
#endif

}  // namespace tutti::engine
