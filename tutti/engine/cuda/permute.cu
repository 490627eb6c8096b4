// Scatters rows to experts and gathers them back (moe_ops.h states the contracts): one warp per
// copy in permute, one thread per piece of a token in unpermute. Memory bound: every copy is read
// or written once; a token's row is read once per copy, from the L1 cache after the first time.
#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// weights, partner and dots may be null.
template <typename T, bool wide>
__global__ void __launch_bounds__(kThreads)
    permute_kernel(Rows<const T> x, Rows<const int32_t> positions, Rows<const float> weights,
                   Rows<T> out, Rows<const T> partner, Rows<float> dots, int64_t rows, int64_t k,
                   int64_t cols, int64_t copies) {
  constexpr int V = kPieceOf<T>;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (at >= rows * k) return;
  const int lane = threadIdx.x % 32;
  const int64_t n = at / k;
  const int64_t i = at % k;
  const int64_t position = positions.row(n)[i];
  if (position >= copies) device_fail("permute: position (position, token)", position, n);
  float dot = 0;
  if (position >= 0) {
    const float weight = weights ? weights.row(n)[i] : 1;
#pragma unroll 2
    for (int64_t j = static_cast<int64_t>(lane) * V; j < cols; j += 32 * V) {
      float v[V];
      load_piece<V, wide>(x.row(n) + j, cols - j, 0, v);
      if (partner) {
        float p[V];
        load_piece<V, wide>(partner.row(position) + j, cols - j, 0, p);
#pragma unroll
        for (int e = 0; e < V; ++e) dot += v[e] * p[e];
      }
#pragma unroll
      for (int e = 0; e < V; ++e) v[e] *= weight;
      store_piece<V, wide>(v, out.row(position) + j, cols - j);
    }
  }
  if (!partner) return;
  dot = warp_reduce<Sum>(dot);
  if (lane == 0) dots.row(n)[i] = dot;
}

template <typename T, bool wide>
__global__ void unpermute_kernel(Rows<const T> copies, int64_t copy_count,
                                 Rows<const int32_t> positions, Rows<const float> weights,
                                 bool accumulate, Rows<T> out, int64_t rows, int64_t k,
                                 int64_t cols) {
  constexpr int V = kPieceOf<T>;
  for_pieces<V>(rows, cols, [&](int64_t n, int64_t j, int64_t count) {
    float sum[V] = {};
    if (accumulate) load_piece<V, wide>(out.row(n) + j, count, 0, sum);
#pragma unroll 4
    for (int64_t i = 0; i < k; ++i) {
      const int64_t position = positions.row(n)[i];
      if (position < 0) continue;
      if (position >= copy_count) device_fail("unpermute: position (position, token)", position, n);
      const float weight = weights ? weights.row(n)[i] : 1;
      float v[V];
      load_piece<V, wide>(copies.row(position) + j, count, 0, v);
#pragma unroll
      for (int e = 0; e < V; ++e) sum[e] += v[e] * weight;
    }
    store_piece<V, wide>(sum, out.row(n) + j, count);
  });
}

}  // namespace

void cuda_permute(Stream& stream, const PermuteArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t rows = args.x.rows;
  const int64_t k = args.positions.cols;
  with_dtype(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    with_flag(all_wide(kPieceOf<T>, args.x, args.out, args.partner), [&](auto wide) {
      launch(cuda, what.op, permute_kernel<T, wide.value>, dim3(blocks_for(rows * k, kWarps)),
             dim3(kThreads), 0, rows_of<const T>(args.x), rows_of<const int32_t>(args.positions),
             rows_of<const float>(args.weights), rows_of<T>(args.out),
             rows_of<const T>(args.partner), rows_of<float>(args.dots), rows, k, args.x.cols,
             args.out.rows);
    });
  });
  record(cuda, what, begin);
}

void cuda_unpermute(Stream& stream, const UnpermuteArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  with_dtype(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kPiece = kPieceOf<T>;
    const RowCover cover = cover_rows(args.out.rows, args.out.cols, kPiece);
    with_flag(all_wide(kPiece, args.rows, args.out), [&](auto wide) {
      launch(cuda, what.op, unpermute_kernel<T, wide.value>, cover.grid, cover.block, 0,
             rows_of<const T>(args.rows), args.rows.rows, rows_of<const int32_t>(args.positions),
             rows_of<const float>(args.weights), args.accumulate, rows_of<T>(args.out),
             args.out.rows, args.positions.cols, args.out.cols);
    });
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
