#include "tutti/engine/cuda/gemm.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"

namespace tutti::engine {
namespace {

template <typename C, typename B, bool wide>
__global__ void epilogue(Rows<C> c, int64_t rows, int64_t cols, const B* bias, float beta) {
  constexpr int V = kPieceOf<C>;
  for_pieces<V>(rows, cols, [&](int64_t r, int64_t j, int64_t count) {
    float v[V] = {};
    if (beta != 0) {  // otherwise C may hold anything, even NaN
      load_piece<V, wide>(c.row(r) + j, count, 0, v);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] *= beta;
    }
    if (bias != nullptr) {
      float b[V];
      load_piece<V, wide>(bias + j, count, 0, b);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] += b[i];
    }
    store_piece<V, wide>(v, c.row(r) + j, count);
  });
}

}  // namespace

void gemm_epilogue(CudaStream& stream, const Matrix& c, const Vector& bias, float beta) {
  with_dtype(c.dtype, [&](auto type) {
    with_dtype(bias ? bias.dtype : DType::f32, [&](auto bias_type) {
      using C = decltype(type);
      using B = decltype(bias_type);
      constexpr int kPiece = kPieceOf<C>;
      const RowCover cover = cover_rows(c.rows, c.cols, kPiece);
      with_flag(all_wide(kPiece, c, bias), [&](auto wide) {
        launch(stream, "gemm", epilogue<C, B, wide.value>, cover.grid, cover.block, 0,
               rows_of<C>(c), c.rows, c.cols, data_of<const B>(bias), beta);
      });
    });
  });
}

}  // namespace tutti::engine
