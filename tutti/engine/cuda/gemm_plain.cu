#include "tutti/engine/cuda/gemm_plain.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/tile_product.h"
#include "tutti/engine/cuda/vectors.h"

namespace tutti::engine {
namespace {

using tile::kThreads;
using tile::Operand;
using tile::Product;
using tile::Sums;
using tile::TileShape;

__device__ float value(const void* data, DType dtype, int64_t index) {
  return dtype == DType::bf16 ? widen(static_cast<const bf16*>(data)[index])
                              : static_cast<const float*>(data)[index];
}

template <typename T, bool a_transposed, bool b_transposed>
__global__ void __launch_bounds__(kThreads)
    product_kernel(Operand<T> a, Operand<T> b, int64_t depth, Matrix c, Vector bias, float alpha,
                   float beta, bool wide_a, bool wide_b) {
  using P = Product<T, a_transposed, b_transposed>;
  alignas(32) __shared__ unsigned char shared[P::kBytes];
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * P::kEdge;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * P::kEdge;
  Sums<T, a_transposed, b_transposed> sums;
  sums.clear();
  P::add(sums, a, first_row, b, first_col, depth, wide_a, wide_b, reinterpret_cast<T*>(shared));
  __syncthreads();
  sums.for_each(reinterpret_cast<float*>(shared), [&](int row, int col, auto& v) {
    constexpr int V = sizeof(v) / sizeof(float);
    if (first_row + row >= c.rows) return;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const int64_t column = first_col + col + e;
      if (column >= c.cols) return;
      const int64_t at = (first_row + row) * c.ld + column;
      float result = alpha * v[e];
      if (beta != 0) result += beta * value(c.data, c.dtype, at);
      if (bias.data != nullptr) result += value(bias.data, bias.dtype, column);
      if (c.dtype == DType::bf16) {
        narrow(result, static_cast<bf16*>(c.data)[at]);
      } else {
        static_cast<float*>(c.data)[at] = result;
      }
    }
  });
}

template <typename T>
Operand<T> operand(const Matrix& x) {
  return {static_cast<const T*>(x.data), x.ld, x.rows, x.cols};
}

}  // namespace

void gemm_plain(CudaStream& stream, const GemmArgs& args) {
  const int64_t depth = args.transpose_a ? args.a.rows : args.a.cols;
  with_dtype(args.a.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kEdge = TileShape<T>::kEdge;
    constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
    const dim3 grid(blocks_for(args.c.cols, kEdge), blocks_for(args.c.rows, kEdge));
    with_flag(args.transpose_a, [&](auto a_transposed) {
      with_flag(args.transpose_b, [&](auto b_transposed) {
        launch(stream, "gemm", product_kernel<T, a_transposed.value, b_transposed.value>, grid,
               dim3(kThreads), 0, operand<T>(args.a), operand<T>(args.b), depth, args.c, args.bias,
               args.alpha, args.beta, wide_rows(kPiece, args.a), wide_rows(kPiece, args.b));
      });
    });
  });
}

}  // namespace tutti::engine
