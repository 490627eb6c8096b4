// Memory bound: 2 or 4 bytes read per element.
#include "tutti/engine/cuda/column_sum.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kThreads2 = 32;  // second step: 32 columns x 32 blocks per thread block

__global__ void __launch_bounds__(kThreads2* kThreads2)
    add_partials_kernel(const float* partials, int64_t blocks, int64_t stride, int64_t columns,
                        float beta, float* out) {
  __shared__ float parts[kThreads2][kThreads2];
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads2 + threadIdx.x;
  float sum = 0;
  if (j < columns) {
#pragma unroll 4
    for (int64_t b = threadIdx.y; b < blocks; b += kThreads2) sum += partials[b * stride + j];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || j >= columns) return;
  for (int y = 1; y < kThreads2; ++y) sum += parts[y][threadIdx.x];
  out[j] = beta == 0 ? sum : out[j] + sum;
}

template <typename T, bool wide>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads)
    column_sum_kernel(Rows<const T> x, int64_t rows, int64_t cols, int64_t rows_per_block,
                      float* partials) {
  constexpr int V = kPieceOf<T>;
  const int64_t j = (static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x) * V;
  const int64_t begin = blockIdx.y * rows_per_block;
  const int64_t end = min(rows, begin + rows_per_block);
  float sums[V] = {};
  if (j < cols) {
#pragma unroll 4
    for (int64_t r = begin + threadIdx.y; r < end; r += kRowThreads) {
      float v[V];
      load_piece<V, wide>(x.row(r) + j, cols - j, 0, v);
#pragma unroll
      for (int i = 0; i < V; ++i) sums[i] += v[i];
    }
  }
  sum_row_threads(sums);
  if (threadIdx.y == 0 && j < cols) {
    store_piece<V, false>(sums, partials + blockIdx.y * cols + j, cols - j);
  }
}

}  // namespace

void add_partials(CudaStream& stream, const char* op, const float* partials, int64_t blocks,
                  int64_t stride, int64_t columns, float beta, float* out) {
  launch(stream, op, add_partials_kernel, dim3(blocks_for(columns, kThreads2)),
         dim3(kThreads2, kThreads2), 0, partials, blocks, stride, columns, beta, out);
}

void cuda_column_sum(Stream& stream, const ColumnSumArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t rows = args.x.rows;
  const int64_t cols = args.x.cols;
  with_dtype(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kPiece = kPieceOf<T>;
    const unsigned column_blocks = blocks_for(cols, int64_t{kColumnThreads} * kPiece);
    const RowBlocks blocks = row_blocks(rows, column_blocks);
    auto* partials = static_cast<float*>(
        cuda.workspace(blocks.count * cols * static_cast<int64_t>(sizeof(float))));
    with_flag(wide_rows(kPiece, args.x), [&](auto wide) {
      launch(cuda, what.op, column_sum_kernel<T, wide.value>,
             dim3(column_blocks, static_cast<unsigned>(blocks.count)),
             dim3(kColumnThreads, kRowThreads), 0, rows_of<const T>(args.x), rows, cols,
             blocks.rows, partials);
    });
    add_partials(cuda, what.op, partials, blocks.count, cols, cols, args.beta,
                 args.out.as<float>());
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
