// Dropout (ops.h states the contract, cpu/dropout.cpp the word of an element). Bytes per element: 4
// with bf16, 8 with f32. Four elements share a Philox block, whose ten rounds take about as long as
// moving the bf16 data on H200.
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/philox.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

struct Mask {
  uint64_t key;
  int64_t first_row;
  const int32_t* rows;  // optional
  int64_t first_column;
  float probability;
  float scale;

  // Column in the whole matrix.
  __device__ int64_t row(int64_t r) const {
    return first_row + (rows == nullptr ? r : int64_t{rows[r]});
  }
  __device__ float apply(float x, uint32_t word) const {
    return uniform_of(word) >= probability ? x * scale : 0;
  }
};

// `aligned_words`: first_column is a multiple of four, so that pieces are complete Philox blocks.
template <typename T, bool wide, bool aligned_words>
__global__ void dropout_kernel(Mask mask, Rows<const T> x, Rows<T> out, int64_t rows,
                               int64_t cols) {
  constexpr int V = kPieceOf<T>;
  for_pieces<V>(rows, cols, [&](int64_t r, int64_t j, int64_t count) {
    float v[V];
    load_piece<V, wide>(x.row(r) + j, count, 0, v);
    const int64_t row = mask.row(r);
    const int64_t column = mask.first_column + j;
    if constexpr (aligned_words) {
#pragma unroll
      for (int block = 0; block < V / 4; ++block) {
        const PhiloxWords words = philox_words(mask.key, static_cast<uint64_t>(row),
                                               static_cast<uint64_t>(column / 4 + block));
#pragma unroll
        for (int i = 0; i < 4; ++i) v[block * 4 + i] = mask.apply(v[block * 4 + i], words.at[i]);
      }
    } else {
      for (int i = 0; i < V; ++i) v[i] = mask.apply(v[i], word_of(mask.key, row, column + i));
    }
    store_piece<V, wide>(v, out.row(r) + j, count);
  });
}

}  // namespace

void cuda_dropout(Stream& stream, const DropoutArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const Matrix& to = args.out ? args.out : args.x;
  const Mask mask{.key = args.key,
                  .first_row = args.first_row,
                  .rows = data_of<const int32_t>(args.rows),
                  .first_column = args.first_column,
                  .probability = args.probability,
                  .scale = 1.0F / (1.0F - args.probability)};
  with_dtype(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kPiece = kPieceOf<T>;
    const RowCover cover = cover_rows(args.x.rows, args.x.cols, kPiece);
    with_flag(all_wide(kPiece, args.x, to), [&](auto wide) {
      with_flag(args.first_column % 4 == 0, [&](auto aligned_words) {
        launch(cuda, what.op, dropout_kernel<T, wide.value, aligned_words.value>, cover.grid,
               cover.block, 0, mask, rows_of<const T>(args.x), rows_of<T>(to), args.x.rows,
               args.x.cols);
      });
    });
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
