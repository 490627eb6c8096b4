// LayerNorm and RMSNorm (ops.h states the contract, cpu/norm.cpp the formulas). A block has a row,
// which its threads keep in registers between the passes: every operand is read and written once.
// Bound by memory; bytes per element with bf16 (with f32):
//   forward         4 residual + 2 branch + 4 residual + 2 y = 12 (16)
//   backward input  2 dy + 4 residual + 8 d_residual + 2 d_branch = 16 (20)
//   backward weight 2 dy + 4 residual = 6 (8), and the partial sums of blocks of rows
#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/column_sum.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kPiece = 4;  // elements: 16 bytes of f32
constexpr int kMostThreads = 512;

template <typename T>
struct Forward {
  bool layer;
  int64_t h;
  Rows<const float> x;
  Rows<const T> branch;
  Rows<float> residual_out;
  const T* weight;
  const T* bias;
  float epsilon;
  Rows<T> y;
  float* mean;
  float* rstd;
};

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
};

// Column of this thread's piece i.
__device__ int64_t column_of(int i) {
  return (static_cast<int64_t>(i) * blockDim.x + threadIdx.x) * kPiece;
}

// The value to normalise: x (+ branch, then it is also stored).
template <bool wide, typename T>
__device__ void load_sum(const Forward<T>& p, int64_t r, int64_t j, float (&v)[kPiece]) {
  load_piece<kPiece, wide>(p.x.row(r) + j, p.h - j, 0, v);
  if (!p.branch) return;
  float b[kPiece];
  load_piece<kPiece, wide>(p.branch.row(r) + j, p.h - j, 0, b);
#pragma unroll
  for (int e = 0; e < kPiece; ++e) v[e] += b[e];
  store_piece<kPiece, wide>(v, p.residual_out.row(r) + j, p.h - j);
}

__device__ float sum_of(const float (&v)[kPiece], bool squares) {
  float sum = 0;
#pragma unroll
  for (int e = 0; e < kPiece; ++e) sum += squares ? v[e] * v[e] : v[e];
  return sum;
}
// Of the `count` elements that exist.
__device__ float centred_squares(const float (&v)[kPiece], int64_t count, float mean) {
  float sum = 0;
#pragma unroll
  for (int e = 0; e < kPiece; ++e) {
    const float apart = e < count ? v[e] - mean : 0;
    sum += apart * apart;
  }
  return sum;
}

template <bool wide, typename T>
__device__ void store_normalised(const Forward<T>& p, int64_t r, int64_t j,
                                 const float (&v)[kPiece], float mean, float rstd) {
  float w[kPiece];
  float b[kPiece] = {};
  load_piece<kPiece, wide>(p.weight + j, p.h - j, 0, w);
  if (p.bias != nullptr) load_piece<kPiece, wide>(p.bias + j, p.h - j, 0, b);
  float y[kPiece];
#pragma unroll
  for (int e = 0; e < kPiece; ++e) y[e] = (v[e] - mean) * rstd * w[e] + b[e];
  store_piece<kPiece, wide>(y, p.y.row(r) + j, p.h - j);
}

// What all threads of a row agree on; the first one writes it down.
struct Moments {
  float mean, rstd;
};
template <typename T>
__device__ Moments finish_moments(const Forward<T>& p, int64_t r, float mean, float squares) {
  const Moments out{mean, 1.0F / sqrtf(squares / static_cast<float>(p.h) + p.epsilon)};
  if (threadIdx.x == 0) {
    if (p.layer && p.mean != nullptr) p.mean[r] = out.mean;
    if (p.rstd != nullptr) p.rstd[r] = out.rstd;
  }
  return out;
}

// pieces * blockDim.x * kPiece >= H.
template <typename T, bool wide, int pieces>
__global__ void __launch_bounds__(kMostThreads) forward_kernel(Forward<T> p) {
  const int64_t r = blockIdx.x;
  float v[pieces][kPiece];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int64_t j = column_of(i);
    if (j < p.h) {
      load_sum<wide>(p, r, j, v[i]);
      sum += sum_of(v[i], !p.layer);
    }
  }
  sum = block_sum(sum);
  float mean = 0;
  if (p.layer) {
    mean = sum / static_cast<float>(p.h);
    sum = 0;
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const int64_t j = column_of(i);
      if (j < p.h) sum += centred_squares(v[i], p.h - j, mean);
    }
    sum = block_sum(sum);
  }
  const Moments m = finish_moments(p, r, mean, sum);
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int64_t j = column_of(i);
    if (j < p.h) store_normalised<wide>(p, r, j, v[i], m.mean, m.rstd);
  }
}

// The same for rows that do not fit: what was read or stored by a thread is read again by it.
template <typename T, bool wide>
__global__ void __launch_bounds__(kMostThreads) forward_long_kernel(Forward<T> p) {
  const int64_t r = blockIdx.x;
  const float* x = p.branch ? p.residual_out.row(r) : p.x.row(r);
  float v[kPiece];
  float sum = 0;
  for (int i = 0; column_of(i) < p.h; ++i) {
    load_sum<wide>(p, r, column_of(i), v);
    sum += sum_of(v, !p.layer);
  }
  sum = block_sum(sum);
  float mean = 0;
  if (p.layer) {
    mean = sum / static_cast<float>(p.h);
    sum = 0;
    for (int i = 0; column_of(i) < p.h; ++i) {
      const int64_t j = column_of(i);
      load_piece<kPiece, wide>(x + j, p.h - j, 0, v);
      sum += centred_squares(v, p.h - j, mean);
    }
    sum = block_sum(sum);
  }
  const Moments m = finish_moments(p, r, mean, sum);
  for (int i = 0; column_of(i) < p.h; ++i) {
    const int64_t j = column_of(i);
    load_piece<kPiece, wide>(x + j, p.h - j, 0, v);
    store_normalised<wide>(p, r, j, v, m.mean, m.rstd);
  }
}

// g = dy * weight and v = x - mean of a piece.
template <bool wide, typename T>
__device__ void load_gradient(const BackwardInput<T>& p, int64_t r, int64_t j, float mean,
                              float (&g)[kPiece], float (&v)[kPiece]) {
  float w[kPiece];
  load_piece<kPiece, wide>(p.dy.row(r) + j, p.h - j, 0, g);
  load_piece<kPiece, wide>(p.weight + j, p.h - j, 0, w);
  load_piece<kPiece, wide>(p.x.row(r) + j, p.h - j, mean, v);
#pragma unroll
  for (int e = 0; e < kPiece; ++e) {
    g[e] *= w[e];
    v[e] -= mean;
  }
}

// inner = g - mean_g - v * slope; d = rstd * inner (+ d).
template <bool wide, typename T>
__device__ void store_gradient(const BackwardInput<T>& p, int64_t r, int64_t j, float mean_g,
                               float slope, float rstd, const float (&g)[kPiece],
                               const float (&v)[kPiece]) {
  float d[kPiece] = {};
  if (p.accumulate) load_piece<kPiece, wide>(p.d_residual.row(r) + j, p.h - j, 0, d);
#pragma unroll
  for (int e = 0; e < kPiece; ++e) d[e] += (g[e] - mean_g - v[e] * slope) * rstd;
  store_piece<kPiece, wide>(d, p.d_residual.row(r) + j, p.h - j);
  if (p.d_branch) store_piece<kPiece, wide>(d, p.d_branch.row(r) + j, p.h - j);
}

template <typename T, bool wide, int pieces>
__global__ void __launch_bounds__(kMostThreads) backward_input_kernel(BackwardInput<T> p) {
  const int64_t r = blockIdx.x;
  const float mean = p.layer ? p.mean[r] : 0;
  const float rstd = p.rstd[r];
  float g[pieces][kPiece];
  float v[pieces][kPiece];
  float sum_g = 0;
  float sum_gv = 0;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int64_t j = column_of(i);
    if (j < p.h) {
      load_gradient<wide>(p, r, j, mean, g[i], v[i]);
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
    const int64_t j = column_of(i);
    if (j < p.h) store_gradient<wide>(p, r, j, mean_g, slope, rstd, g[i], v[i]);
  }
}

template <typename T, bool wide>
__global__ void __launch_bounds__(kMostThreads) backward_input_long_kernel(BackwardInput<T> p) {
  const int64_t r = blockIdx.x;
  const float mean = p.layer ? p.mean[r] : 0;
  const float rstd = p.rstd[r];
  float g[kPiece];
  float v[kPiece];
  float sum_g = 0;
  float sum_gv = 0;
  for (int i = 0; column_of(i) < p.h; ++i) {
    load_gradient<wide>(p, r, column_of(i), mean, g, v);
#pragma unroll
    for (int e = 0; e < kPiece; ++e) {
      sum_g += g[e];
      sum_gv += g[e] * v[e];
    }
  }
  const float inverse_h = 1.0F / static_cast<float>(p.h);
  const float mean_g = p.layer ? block_sum(sum_g) * inverse_h : 0;
  const float slope = block_sum(sum_gv) * inverse_h * rstd * rstd;
  for (int i = 0; column_of(i) < p.h; ++i) {
    const int64_t j = column_of(i);
    load_gradient<wide>(p, r, j, mean, g, v);
    store_gradient<wide>(p, r, j, mean_g, slope, rstd, g, v);
  }
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

// Calls body(pieces of a thread as a constant, threads) with 1, 2, 4, 8 pieces, or 0: too long.
template <typename Body>
void with_pieces(int64_t h, const Body& body) {
  const int64_t pieces = (h + kPiece - 1) / kPiece;
  const auto threads = [&](int64_t each) {
    return static_cast<unsigned>(((pieces + each - 1) / each + 31) / 32 * 32);
  };
  if (pieces <= 256) return body(std::integral_constant<int, 1>(), threads(1));
  if (pieces <= 512) return body(std::integral_constant<int, 2>(), threads(2));
  if (pieces <= 4 * kMostThreads) return body(std::integral_constant<int, 4>(), threads(4));
  if (pieces <= 8 * kMostThreads) return body(std::integral_constant<int, 8>(), threads(8));
  return body(std::integral_constant<int, 0>(), unsigned{kMostThreads});
}

}  // namespace

void cuda_norm_forward(Stream& stream, const NormForwardArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t h = args.y.cols;
  const auto grid = dim3(h == 0 ? 0 : static_cast<unsigned>(args.y.rows));
  const bool aligned = all_wide(kPiece, args.residual_in, args.branch, args.residual_out,
                                args.weight, args.bias, args.y);
  with_dtype(args.y.dtype, [&](auto type) {
    using T = decltype(type);
    const Forward<T> p{.layer = args.kind == NormKind::layer,
                       .h = h,
                       .x = rows_of<const float>(args.residual_in),
                       .branch = rows_of<const T>(args.branch),
                       .residual_out = rows_of<float>(args.residual_out),
                       .weight = data_of<const T>(args.weight),
                       .bias = data_of<const T>(args.bias),
                       .epsilon = args.epsilon,
                       .y = rows_of<T>(args.y),
                       .mean = data_of<float>(args.mean),
                       .rstd = data_of<float>(args.rstd)};
    with_flag(aligned, [&](auto wide) {
      with_pieces(h, [&](auto pieces, unsigned threads) {
        if constexpr (pieces.value == 0) {
          launch(cuda, what.op, forward_long_kernel<T, wide.value>, grid, dim3(threads), 0, p);
        } else {
          launch(cuda, what.op, forward_kernel<T, wide.value, pieces.value>, grid, dim3(threads), 0,
                 p);
        }
      });
    });
  });
  record(cuda, what, begin);
}

void cuda_norm_backward_input(Stream& stream, const NormBackwardInputArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t h = args.dy.cols;
  const auto grid = dim3(h == 0 ? 0 : static_cast<unsigned>(args.dy.rows));
  const bool aligned =
      all_wide(kPiece, args.dy, args.residual, args.weight, args.d_residual, args.d_branch);
  with_dtype(args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    const BackwardInput<T> p{.layer = args.kind == NormKind::layer,
                             .h = h,
                             .dy = rows_of<const T>(args.dy),
                             .x = rows_of<const float>(args.residual),
                             .weight = data_of<const T>(args.weight),
                             .mean = data_of<const float>(args.mean),
                             .rstd = data_of<const float>(args.rstd),
                             .accumulate = args.accumulate,
                             .d_residual = rows_of<float>(args.d_residual),
                             .d_branch = rows_of<T>(args.d_branch)};
    with_flag(aligned, [&](auto wide) {
      with_pieces(h, [&](auto pieces, unsigned threads) {
        if constexpr (pieces.value == 0) {
          launch(cuda, what.op, backward_input_long_kernel<T, wide.value>, grid, dim3(threads), 0,
                 p);
        } else {
          launch(cuda, what.op, backward_input_kernel<T, wide.value, pieces.value>, grid,
                 dim3(threads), 0, p);
        }
      });
    });
  });
  record(cuda, what, begin);
}

void cuda_norm_backward_weight(Stream& stream, const NormBackwardWeightArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t rows = args.dy.rows;
  const int64_t h = args.dy.cols;
  if (rows > 0 && h > 0) {
    const unsigned column_blocks = blocks_for(h, int64_t{kColumnThreads} * kPiece);
    const RowBlocks blocks = row_blocks(rows, column_blocks);
    auto* partials = static_cast<float*>(
        cuda.workspace(blocks.count * 2 * h * static_cast<int64_t>(sizeof(float))));
    const float* mean = args.kind == NormKind::layer ? args.mean.as<float>() : nullptr;
    with_dtype(args.dy.dtype, [&](auto type) {
      using T = decltype(type);
      with_flag(all_wide(kPiece, args.dy, args.residual), [&](auto wide) {
        launch(cuda, what.op, backward_weight_kernel<T, wide.value>,
               dim3(column_blocks, static_cast<unsigned>(blocks.count)),
               dim3(kColumnThreads, kRowThreads), 0, rows_of<const T>(args.dy),
               rows_of<const float>(args.residual), mean, args.rstd.as<float>(), rows, h,
               blocks.rows, partials);
      });
    });
    add_partials(cuda, what.op, partials, blocks.count, 2 * h, h, args.beta,
                 args.d_weight.as<float>());
    if (args.d_bias) {
      add_partials(cuda, what.op, partials + h, blocks.count, 2 * h, h, args.beta,
                   args.d_bias.as<float>());
    }
  }
  record(cuda, what, begin);
}

}  // namespace tutti::engine
