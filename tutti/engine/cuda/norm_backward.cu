// Backward pass of LayerNorm and RMSNorm (ops.h states the contract, cpu/norm.cpp the formulas).
// Memory bound; bytes per element with bf16 (with f32):
//   input              2 dy + 4 residual + 8 d_residual + 2 d_branch = 16 (20)
//   input and weights  the same, and 2 H f32 sums (with a bias; else H) per block, for a few
//                      hundred blocks, written and read
//   weights            2 dy + 4 residual = 6 (8), and the partial sums of blocks of rows
#include <algorithm>

#include "tutti/engine/cuda/amax.h"
#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/column_sum.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/norm_rows.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kPiece = kNormPiece;

template <typename T>
struct BackwardInput {
  bool layer;
  int64_t h;
  Rows<const T> dy;
  Rows<const float> x;
  const T* weight;
  const float* mean;
  const float* rstd;
  bool accumulate;
  Rows<float> d_residual;
  Rows<T> d_branch;
  float* amax;  // of d_branch
};

// Loads dy and v = x - mean of a piece, passes both to `visit`, then computes g = dy * weight.
template <bool wide, typename T, typename Visit>
__device__ void load_gradient(const BackwardInput<T>& p, int64_t r, int64_t j, float mean,
                              float (&g)[kPiece], float (&v)[kPiece], const Visit& visit) {
  float w[kPiece];
  load_piece<kPiece, wide>(p.dy.row(r) + j, p.h - j, 0, g);
  load_piece<kPiece, wide>(p.weight + j, p.h - j, 0, w);
  load_piece<kPiece, wide>(p.x.row(r) + j, p.h - j, mean, v);
#pragma unroll
  for (int e = 0; e < kPiece; ++e) v[e] -= mean;
  visit(g, v);
#pragma unroll
  for (int e = 0; e < kPiece; ++e) g[e] *= w[e];
}

struct NoVisit {
  __device__ void operator()(const float (&)[kPiece], const float (&)[kPiece]) const {}
};

// inner = g - mean_g - v * slope; d = rstd * inner (+ d). most: the largest magnitude so far.
template <bool wide, typename T>
__device__ void store_gradient(const BackwardInput<T>& p, int64_t r, int64_t j, float mean_g,
                               float slope, float rstd, const float (&g)[kPiece],
                               const float (&v)[kPiece], unsigned& most) {
  float d[kPiece] = {};
  if (p.accumulate) load_piece<kPiece, wide>(p.d_residual.row(r) + j, p.h - j, 0, d);
#pragma unroll
  for (int e = 0; e < kPiece; ++e) d[e] += (g[e] - mean_g - v[e] * slope) * rstd;
  store_piece<kPiece, wide>(d, p.d_residual.row(r) + j, p.h - j);
  if (p.d_branch) store_piece<kPiece, wide>(d, p.d_branch.row(r) + j, p.h - j);
  if (p.amax != nullptr) add_magnitudes(d, p.h - j, most);
}

// Row r; calls add(i, dy, x - mean, rstd) for each piece before storing the row's gradient.
template <bool wide, int pieces, typename T, typename Add>
__device__ void backward_row(const BackwardInput<T>& p, int64_t r, unsigned& most, const Add& add) {
  const float mean = p.layer ? p.mean[r] : 0;
  const float rstd = p.rstd[r];
  float g[pieces][kPiece] = {};
  float v[pieces][kPiece] = {};
  float sum_g = 0;
  float sum_gv = 0;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int64_t j = norm_column(i);
    if (j < p.h) {
      load_gradient<wide>(
          p, r, j, mean, g[i], v[i],
          [&](const float(&dy)[kPiece], const float(&x)[kPiece]) { add(i, dy, x, rstd); });
#pragma unroll
      for (int e = 0; e < kPiece; ++e) {
        sum_g += g[i][e];
        sum_gv += g[i][e] * v[i][e];
      }
    }
  }
  const float inverse_h = 1.0F / static_cast<float>(p.h);
  const float mean_g = p.layer ? block_sum(sum_g) * inverse_h : 0;
  const float slope = block_sum(sum_gv) * inverse_h * rstd * rstd;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int64_t j = norm_column(i);
    if (j < p.h) store_gradient<wide>(p, r, j, mean_g, slope, rstd, g[i], v[i], most);
  }
}

template <typename T, bool wide, int pieces>
__global__ void __launch_bounds__(kMostNormThreads) backward_input_kernel(BackwardInput<T> p) {
  unsigned most = 0;
  backward_row<wide, pieces>(p, blockIdx.x, most,
                             [](int, const float(&)[kPiece], const float(&)[kPiece], float) {});
  if (p.amax != nullptr) store_magnitude<T>(most, p.amax);
}

// Including the gradients of the weights. A block processes every gridDim.x-th row and keeps the
// sums over them in registers: partials[block] = [sums of dy * x_hat | sums of dy], the latter only
// with a bias.
template <typename T, bool wide, int pieces, bool with_bias>
__global__ void __launch_bounds__(kMostNormThreads)
    backward_kernel(BackwardInput<T> p, int64_t rows, float* partials) {
  float weight[pieces][kPiece] = {};
  float bias[with_bias ? pieces : 1][kPiece] = {};
  unsigned most = 0;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    backward_row<wide, pieces>(
        p, r, most, [&](int i, const float(&dy)[kPiece], const float(&v)[kPiece], float rstd) {
#pragma unroll
          for (int e = 0; e < kPiece; ++e) {
            weight[i][e] += dy[e] * (v[e] * rstd);
            if constexpr (with_bias) bias[i][e] += dy[e];
          }
        });
  }
  float* out = partials + blockIdx.x * (with_bias ? 2 : 1) * p.h;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int64_t j = norm_column(i);
    if (j >= p.h) continue;
    store_piece<kPiece, false>(weight[i], out + j, p.h - j);
    if constexpr (with_bias) store_piece<kPiece, false>(bias[i], out + p.h + j, p.h - j);
  }
  if (p.amax != nullptr) store_magnitude<T>(most, p.amax);
}

template <typename T, bool wide>
__global__ void __launch_bounds__(kMostNormThreads) backward_input_long_kernel(BackwardInput<T> p) {
  const int64_t r = blockIdx.x;
  const float mean = p.layer ? p.mean[r] : 0;
  const float rstd = p.rstd[r];
  float g[kPiece];
  float v[kPiece];
  float sum_g = 0;
  float sum_gv = 0;
  for (int i = 0; norm_column(i) < p.h; ++i) {
    load_gradient<wide>(p, r, norm_column(i), mean, g, v, NoVisit());
#pragma unroll
    for (int e = 0; e < kPiece; ++e) {
      sum_g += g[e];
      sum_gv += g[e] * v[e];
    }
  }
  const float inverse_h = 1.0F / static_cast<float>(p.h);
  const float mean_g = p.layer ? block_sum(sum_g) * inverse_h : 0;
  const float slope = block_sum(sum_gv) * inverse_h * rstd * rstd;
  unsigned most = 0;
  for (int i = 0; norm_column(i) < p.h; ++i) {
    const int64_t j = norm_column(i);
    load_gradient<wide>(p, r, j, mean, g, v, NoVisit());
    store_gradient<wide>(p, r, j, mean_g, slope, rstd, g, v, most);
  }
  if (p.amax != nullptr) store_magnitude<T>(most, p.amax);
}

// partials[block] = [sums of dy * x_hat | sums of dy], 2H floats.
template <typename T, bool wide>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads)
    backward_weight_kernel(Rows<const T> dy, Rows<const float> x, const float* mean,
                           const float* rstd, int64_t rows, int64_t h, int64_t rows_per_block,
                           float* partials) {
  const int64_t j = (static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x) * kPiece;
  const int64_t begin = blockIdx.y * rows_per_block;
  const int64_t end = min(rows, begin + rows_per_block);
  float weight[kPiece] = {};
  float bias[kPiece] = {};
  if (j < h) {
#pragma unroll 4
    for (int64_t r = begin + threadIdx.y; r < end; r += kRowThreads) {
      float g[kPiece];
      float v[kPiece];
      load_piece<kPiece, wide>(dy.row(r) + j, h - j, 0, g);
      load_piece<kPiece, wide>(x.row(r) + j, h - j, 0, v);
      const float centre = mean == nullptr ? 0 : mean[r];
      const float scale = rstd[r];
#pragma unroll
      for (int e = 0; e < kPiece; ++e) {
        weight[e] += g[e] * ((v[e] - centre) * scale);
        bias[e] += g[e];
      }
    }
  }
  sum_row_threads(weight);
  sum_row_threads(bias);
  if (threadIdx.y == 0 && j < h) {
    float* out = partials + blockIdx.y * 2 * h + j;
    store_piece<kPiece, false>(weight, out, h - j);
    store_piece<kPiece, false>(bias, out + h, h - j);
  }
}

template <typename T>
BackwardInput<T> backward_of(const NormBackwardInputArgs& args) {
  return {.layer = args.kind == NormKind::layer,
          .h = args.dy.cols,
          .dy = rows_of<const T>(args.dy),
          .x = rows_of<const float>(args.residual),
          .weight = data_of<const T>(args.weight),
          .mean = data_of<const float>(args.mean),
          .rstd = data_of<const float>(args.rstd),
          .accumulate = args.accumulate,
          .d_residual = rows_of<float>(args.d_residual),
          .d_branch = rows_of<T>(args.d_branch),
          .amax = data_of<float>(args.amax)};
}

bool is_aligned(const NormBackwardInputArgs& args) {
  return all_wide(kPiece, args.dy, args.residual, args.weight, args.d_residual, args.d_branch);
}

void backward_input(CudaStream& cuda, const char* op, const NormBackwardInputArgs& args) {
  const int64_t h = args.dy.cols;
  const auto grid = dim3(h == 0 ? 0 : static_cast<unsigned>(args.dy.rows));
  with_dtype(args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    const BackwardInput<T> p = backward_of<T>(args);
    with_flag(is_aligned(args), [&](auto wide) {
      with_norm_pieces(h, [&](auto pieces, unsigned threads) {
        if constexpr (pieces.value == 0) {
          launch(cuda, op, backward_input_long_kernel<T, wide.value>, grid, dim3(threads), 0, p);
        } else {
          launch(cuda, op, backward_input_kernel<T, wide.value, pieces.value>, grid, dim3(threads),
                 0, p);
        }
      });
    });
  });
}

// Sums the partials of the blocks in order: first those of the weight, then those of the bias.
void add_sums(CudaStream& cuda, const char* op, const float* partials, int64_t blocks,
              int64_t stride, float beta, const Vector& d_weight, const Vector& d_bias) {
  const int64_t h = d_weight.count;
  add_partials(cuda, op, partials, blocks, stride, h, beta, d_weight.as<float>());
  if (d_bias) add_partials(cuda, op, partials + h, blocks, stride, h, beta, d_bias.as<float>());
}

void backward_weight(CudaStream& cuda, const char* op, const NormBackwardWeightArgs& args) {
  const int64_t rows = args.dy.rows;
  const int64_t h = args.dy.cols;
  if (rows == 0 || h == 0) return;
  const unsigned column_blocks = blocks_for(h, int64_t{kColumnThreads} * kPiece);
  const RowBlocks blocks = row_blocks(rows, column_blocks);
  auto* partials = static_cast<float*>(
      cuda.workspace(blocks.count * 2 * h * static_cast<int64_t>(sizeof(float))));
  const float* mean = args.kind == NormKind::layer ? args.mean.as<float>() : nullptr;
  with_dtype(args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    with_flag(all_wide(kPiece, args.dy, args.residual), [&](auto wide) {
      launch(cuda, op, backward_weight_kernel<T, wide.value>,
             dim3(column_blocks, static_cast<unsigned>(blocks.count)),
             dim3(kColumnThreads, kRowThreads), 0, rows_of<const T>(args.dy),
             rows_of<const float>(args.residual), mean, args.rstd.as<float>(), rows, h, blocks.rows,
             partials);
    });
  });
  add_sums(cuda, op, partials, blocks.count, 2 * h, args.beta, args.d_weight, args.d_bias);
}

// Whether the sums of a row's pieces fit in registers together with the row.
bool sums_fit(int64_t h) { return h <= int64_t{4} * kMostNormThreads * kPiece; }

// Gradients of input and weights in one pass.
void backward(CudaStream& cuda, const char* op, const NormBackwardInputArgs& args) {
  const int64_t rows = args.dy.rows;
  const int64_t h = args.dy.cols;
  if (rows == 0 || h == 0) return;
  const int64_t stride = args.d_bias ? 2 * h : h;
  with_norm_pieces(h, [&](auto pieces, unsigned threads) {
    if constexpr (pieces.value > 0 && pieces.value <= 4) {
      // As many blocks as fit on a Hopper GPU, 8, 4 or 2 on each of 132 multiprocessors, but always
      // a function of the shape only, so that the bits of the sums are, too.
      constexpr int64_t kBlocks = 1056 / pieces.value;
      const int64_t blocks = std::min(rows, kBlocks);
      auto* partials = static_cast<float*>(
          cuda.workspace(blocks * stride * static_cast<int64_t>(sizeof(float))));
      with_dtype(args.dy.dtype, [&](auto type) {
        using T = decltype(type);
        with_flag(is_aligned(args), [&](auto wide) {
          with_flag(static_cast<bool>(args.d_bias), [&](auto bias) {
            launch(cuda, op, backward_kernel<T, wide.value, pieces.value, bias.value>,
                   dim3(static_cast<unsigned>(blocks)), dim3(threads), 0, backward_of<T>(args),
                   rows, partials);
          });
        });
      });
      add_sums(cuda, op, partials, blocks, stride, args.beta, args.d_weight, args.d_bias);
    }
  });
}

}  // namespace

void cuda_norm_backward_input(Stream& stream, const NormBackwardInputArgs& args) {
  const OpRecord what = describe(args);
  TUTTI_CHECK(args.offset == 0, "{}: offset {} is not supported on cuda", what.op, args.offset);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  begin_magnitude(cuda, args.amax);
  if (!args.d_weight) {
    backward_input(cuda, what.op, args);
  } else if (sums_fit(args.dy.cols)) {
    backward(cuda, what.op, args);
  } else {
    backward_weight(cuda, what.op, weight_args(args));  // first: d_branch may overlay dy
    backward_input(cuda, what.op, args);
  }
  record(cuda, what, begin);
}

void cuda_norm_backward_weight(Stream& stream, const NormBackwardWeightArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  backward_weight(cuda, what.op, args);
  record(cuda, what, begin);
}

}  // namespace tutti::engine
