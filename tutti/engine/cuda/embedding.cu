// Gathers rows of tables (ops.h and vocabulary_ops.h state the contracts); the backward pass is in
// embedding_backward.cu. Memory bound: with bf16 tables 2 bytes per element of each table and 4 of
// out.
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

// Row of the position table for row r: given[r], or first + (first_row + r) % sequence.
struct PositionRow {
  const int32_t* given;  // optional
  int64_t first, first_row, sequence;
  int64_t rows;  // of the table

  __device__ int64_t of(int64_t r) const {
    const int64_t at = given != nullptr ? int64_t{given[r]} : first + (first_row + r) % sequence;
    if (at < 0 || at >= rows) device_fail("position outside its table (position, row)", at, r);
    return at;
  }
};

struct TokenRow {
  const int32_t* tokens;
  int64_t first, rows;  // of this rank's shard
  int64_t vocabulary;   // of all ranks

  // Row of the table, or -1 if another rank has it.
  __device__ int64_t of(int64_t r) const {
    const int64_t token = tokens[r];
    if (token < 0 || token >= vocabulary) {
      device_fail("token outside the vocabulary (token, row)", token, r);
    }
    return token >= first && token < first + rows ? token - first : -1;
  }
};

template <int V, bool wide, typename T>
__device__ void add_piece(const T* p, int64_t count, float (&v)[V]) {
  float more[V];
  load_piece<V, wide>(p, count, 0, more);
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] += more[i];
}

// positions.data null: no positions are added. Rows of other ranks become zero, without a position.
template <typename T, typename Out, bool wide>
__global__ void gather_kernel(TokenRow token, Rows<const T> table, PositionRow position,
                              Rows<const T> positions, Rows<Out> out, int64_t rows, int64_t cols) {
  constexpr int V = kPieceOf<T, Out>;
  for_pieces<V>(rows, cols, [&](int64_t r, int64_t j, int64_t count) {
    const int64_t from = token.of(r);
    float v[V] = {};
    if (from >= 0) {
      load_piece<V, wide>(table.row(from) + j, count, 0, v);
      if (positions) add_piece<V, wide>(positions.row(position.of(r)) + j, count, v);
    }
    store_piece<V, wide>(v, out.row(r) + j, count);
  });
}

template <typename T, bool wide>
__global__ void add_positions_kernel(Rows<const T> x, PositionRow position, Rows<const T> positions,
                                     Rows<float> out, int64_t rows, int64_t cols) {
  constexpr int V = kPieceOf<T, float>;
  for_pieces<V>(rows, cols, [&](int64_t r, int64_t j, int64_t count) {
    float v[V];
    load_piece<V, wide>(x.row(r) + j, count, 0, v);
    if (positions) add_piece<V, wide>(positions.row(position.of(r)) + j, count, v);
    store_piece<V, wide>(v, out.row(r) + j, count);
  });
}

}  // namespace

void cuda_embedding_forward(Stream& stream, const EmbeddingForwardArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const Matrix& table = args.token_table;
  const TokenRow token{args.tokens.as<int32_t>(), args.first_token, table.rows,
                       args.vocabulary == 0 ? table.rows : args.vocabulary};
  const PositionRow position{.given = data_of<const int32_t>(args.positions),
                             .first = args.first_position,
                             .first_row = 0,
                             .sequence = args.sequence,
                             .rows = args.position_table.rows};
  with_dtype(table.dtype, [&](auto type) {
    with_dtype(args.out.dtype, [&](auto out_type) {
      using T = decltype(type);
      using Out = decltype(out_type);
      constexpr int kPiece = kPieceOf<T, Out>;
      const RowCover cover = cover_rows(args.out.rows, args.out.cols, kPiece);
      with_flag(all_wide(kPiece, table, args.position_table, args.out), [&](auto wide) {
        launch(cuda, what.op, gather_kernel<T, Out, wide.value>, cover.grid, cover.block, 0, token,
               rows_of<const T>(table), position, rows_of<const T>(args.position_table),
               rows_of<Out>(args.out), args.out.rows, args.out.cols);
      });
    });
  });
  record(cuda, what, begin);
}

void cuda_add_positions(Stream& stream, const AddPositionsArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const PositionRow position{.given = data_of<const int32_t>(args.positions),
                             .first = 0,
                             .first_row = args.first_row,
                             .sequence = args.sequence,
                             .rows = args.position_table.rows};
  with_dtype(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kPiece = kPieceOf<T, float>;
    const RowCover cover = cover_rows(args.out.rows, args.out.cols, kPiece);
    with_flag(all_wide(kPiece, args.x, args.position_table, args.out), [&](auto wide) {
      launch(cuda, what.op, add_positions_kernel<T, wide.value>, cover.grid, cover.block, 0,
             rows_of<const T>(args.x), position, rows_of<const T>(args.position_table),
             rows_of<float>(args.out), args.out.rows, args.out.cols);
    });
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
