// GELU and SwiGLU (ops.h states the contract, cpu/activation.cpp the formulas). One pass, memory
// bound; bytes per element of y with bf16 (twice with f32): GELU 4 forward, 6 backward; SwiGLU 6
// forward, 10 backward.
#include "tutti/engine/cuda/activation_math.h"
#include "tutti/engine/cuda/amax.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

// v = x + bias (if not null).
template <int V, bool wide, typename T>
__device__ void load_biased(const T* x, const T* bias, int64_t count, float (&v)[V]) {
  load_piece<V, wide>(x, count, 0, v);
  if (bias == nullptr) return;
  float b[V];
  load_piece<V, wide>(bias, count, 0, b);
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] += b[i];
}

template <typename T, bool wide, bool gated>
__global__ void forward_kernel(Rows<const T> x, const T* bias, Rows<T> y, int64_t rows, int64_t f,
                               float* amax) {
  constexpr int V = kPieceOf<T>;
  unsigned most = 0;
  for_pieces<V>(rows, f, [&](int64_t r, int64_t j, int64_t count) {
    float v[V];
    load_biased<V, wide>(x.row(r) + j, bias == nullptr ? nullptr : bias + j, count, v);
    if constexpr (gated) {
      float up[V];
      load_biased<V, wide>(x.row(r) + f + j, bias == nullptr ? nullptr : bias + f + j, count, up);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] = v[i] * sigmoid(v[i]) * up[i];
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] = gelu(v[i]);
    }
    store_piece<V, wide>(v, y.row(r) + j, count);
    if (amax != nullptr) add_magnitudes(v, count, most);
  });
  if (amax != nullptr) store_magnitude<T>(most, amax);
}

template <typename T, bool wide, bool gated>
__global__ void backward_kernel(Rows<const T> x, const T* bias, Rows<const T> dy, Rows<T> dx,
                                int64_t rows, int64_t f, float* amax) {
  constexpr int V = kPieceOf<T>;
  unsigned most = 0;
  for_pieces<V>(rows, f, [&](int64_t r, int64_t j, int64_t count) {
    float v[V];
    float d[V];
    load_biased<V, wide>(x.row(r) + j, bias == nullptr ? nullptr : bias + j, count, v);
    load_piece<V, wide>(dy.row(r) + j, count, 0, d);
    if constexpr (gated) {
      float up[V];
      load_biased<V, wide>(x.row(r) + f + j, bias == nullptr ? nullptr : bias + f + j, count, up);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float s = sigmoid(v[i]);
        const float silu = v[i] * s;
        v[i] = d[i] * up[i] * (silu * (1.0F - s) + s);
        up[i] = d[i] * silu;
      }
      store_piece<V, wide>(up, dx.row(r) + f + j, count);
      if (amax != nullptr) add_magnitudes(up, count, most);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] = d[i] * gelu_slope(v[i]);
    }
    store_piece<V, wide>(v, dx.row(r) + j, count);
    if (amax != nullptr) add_magnitudes(v, count, most);
  });
  if (amax != nullptr) store_magnitude<T>(most, amax);
}

// Whether pieces that begin F columns further are aligned too.
bool halves_aligned(Activation kind, DType dtype, int64_t f) {
  return kind == Activation::gelu || f * dtype_bytes(dtype) % 16 == 0;
}

void check_kind(const char* op, Activation kind) {
  TUTTI_CHECK(kind == Activation::gelu || kind == Activation::swiglu,
              "{}: geglu and clamped_swiglu are not supported on cuda", op);
}

}  // namespace

void cuda_activation_forward(Stream& stream, const ActivationForwardArgs& args) {
  const OpRecord what = describe(args);
  check_kind(what.op, args.kind);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t rows = args.y.rows;
  const int64_t f = args.y.cols;
  float* const amax = begin_magnitude(cuda, args.amax);
  with_dtype(args.y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kPiece = kPieceOf<T>;
    const RowCover cover = cover_rows(rows, f, kPiece);
    const bool aligned =
        all_wide(kPiece, args.x, args.bias, args.y) && halves_aligned(args.kind, args.y.dtype, f);
    with_flag(aligned, [&](auto wide) {
      with_flag(args.kind == Activation::swiglu, [&](auto gated) {
        launch(cuda, what.op, forward_kernel<T, wide.value, gated.value>, cover.grid, cover.block,
               0, rows_of<const T>(args.x), data_of<const T>(args.bias), rows_of<T>(args.y), rows,
               f, amax);
      });
    });
  });
  record(cuda, what, begin);
}

void cuda_activation_backward(Stream& stream, const ActivationBackwardArgs& args) {
  const OpRecord what = describe(args);
  check_kind(what.op, args.kind);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t rows = args.dy.rows;
  const int64_t f = args.dy.cols;
  float* const amax = begin_magnitude(cuda, args.amax);
  with_dtype(args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kPiece = kPieceOf<T>;
    const RowCover cover = cover_rows(rows, f, kPiece);
    const bool aligned = all_wide(kPiece, args.x, args.bias, args.dy, args.dx) &&
                         halves_aligned(args.kind, args.dy.dtype, f);
    with_flag(aligned, [&](auto wide) {
      with_flag(args.kind == Activation::swiglu, [&](auto gated) {
        launch(cuda, what.op, backward_kernel<T, wide.value, gated.value>, cover.grid, cover.block,
               0, rows_of<const T>(args.x), data_of<const T>(args.bias), rows_of<const T>(args.dy),
               rows_of<T>(args.dx), rows, f, amax);
      });
    });
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
