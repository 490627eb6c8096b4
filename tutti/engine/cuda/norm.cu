// LayerNorm and RMSNorm (ops.h states the contract, cpu/norm.cpp the formulas). One block per row,
// which its threads keep in registers between the passes: every operand is read and written once.
// Memory bound; bytes per element with bf16 (with f32):
//   4 residual + 2 branch + 4 residual + 2 y = 12 (16)
// Backward pass: norm_backward.cu.
#include "tutti/engine/cuda/amax.h"
#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/norm_rows.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kPiece = kNormPiece;

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
  float* amax;
};

// The value to normalise: x, or x + branch, which is also stored.
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
// Over the first `count` elements.
__device__ float centred_squares(const float (&v)[kPiece], int64_t count, float mean) {
  float sum = 0;
#pragma unroll
  for (int e = 0; e < kPiece; ++e) {
    const float apart = e < count ? v[e] - mean : 0;
    sum += apart * apart;
  }
  return sum;
}

// most: the largest magnitude stored so far.
template <bool wide, typename T>
__device__ void store_normalised(const Forward<T>& p, int64_t r, int64_t j,
                                 const float (&v)[kPiece], float mean, float rstd, unsigned& most) {
  float w[kPiece];
  float b[kPiece] = {};
  load_piece<kPiece, wide>(p.weight + j, p.h - j, 0, w);
  if (p.bias != nullptr) load_piece<kPiece, wide>(p.bias + j, p.h - j, 0, b);
  float y[kPiece];
#pragma unroll
  for (int e = 0; e < kPiece; ++e) y[e] = (v[e] - mean) * rstd * w[e] + b[e];
  store_piece<kPiece, wide>(y, p.y.row(r) + j, p.h - j);
  if (p.amax != nullptr) add_magnitudes(y, p.h - j, most);
}

// Statistics of a row, the same in all its threads; the first thread stores them.
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
__global__ void __launch_bounds__(kMostNormThreads) forward_kernel(Forward<T> p) {
  const int64_t r = blockIdx.x;
  float v[pieces][kPiece];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int64_t j = norm_column(i);
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
      const int64_t j = norm_column(i);
      if (j < p.h) sum += centred_squares(v[i], p.h - j, mean);
    }
    sum = block_sum(sum);
  }
  const Moments m = finish_moments(p, r, mean, sum);
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int64_t j = norm_column(i);
    if (j < p.h) store_normalised<wide>(p, r, j, v[i], m.mean, m.rstd, most);
  }
  if (p.amax != nullptr) store_magnitude<T>(most, p.amax);
}

// The same for rows that do not fit in registers: a thread rereads the elements it read or stored.
template <typename T, bool wide>
__global__ void __launch_bounds__(kMostNormThreads) forward_long_kernel(Forward<T> p) {
  const int64_t r = blockIdx.x;
  const float* x = p.branch ? p.residual_out.row(r) : p.x.row(r);
  float v[kPiece];
  float sum = 0;
  for (int i = 0; norm_column(i) < p.h; ++i) {
    load_sum<wide>(p, r, norm_column(i), v);
    sum += sum_of(v, !p.layer);
  }
  sum = block_sum(sum);
  float mean = 0;
  if (p.layer) {
    mean = sum / static_cast<float>(p.h);
    sum = 0;
    for (int i = 0; norm_column(i) < p.h; ++i) {
      const int64_t j = norm_column(i);
      load_piece<kPiece, wide>(x + j, p.h - j, 0, v);
      sum += centred_squares(v, p.h - j, mean);
    }
    sum = block_sum(sum);
  }
  const Moments m = finish_moments(p, r, mean, sum);
  unsigned most = 0;
  for (int i = 0; norm_column(i) < p.h; ++i) {
    const int64_t j = norm_column(i);
    load_piece<kPiece, wide>(x + j, p.h - j, 0, v);
    store_normalised<wide>(p, r, j, v, m.mean, m.rstd, most);
  }
  if (p.amax != nullptr) store_magnitude<T>(most, p.amax);
}

}  // namespace

void cuda_norm_forward(Stream& stream, const NormForwardArgs& args) {
  const OpRecord what = describe(args);
  TUTTI_CHECK(args.offset == 0, "{}: offset {} is not supported on cuda", what.op, args.offset);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t h = args.y.cols;
  float* const amax = begin_magnitude(cuda, args.amax);
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
                       .rstd = data_of<float>(args.rstd),
                       .amax = amax};
    with_flag(aligned, [&](auto wide) {
      with_norm_pieces(h, [&](auto pieces, unsigned threads) {
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

}  // namespace tutti::engine
