// Copies, conversions and sums of matrices and vectors (ops.h states the contracts): one pass,
// memory bound, as many bytes as the operands have. A matrix without padding between rows is
// processed as one long row.
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

// plus.data null: nothing is added. out may be x or plus.
template <typename X, typename Plus, typename Out, bool wide>
__global__ void add_kernel(Rows<const X> x, Rows<const Plus> plus, Rows<Out> out, int64_t rows,
                           int64_t cols) {
  constexpr int V = kPieceOf<X, Plus, Out>;
  for_pieces<V>(rows, cols, [&](int64_t r, int64_t j, int64_t count) {
    float v[V];
    load_piece<V, wide>(x.row(r) + j, count, 0, v);
    if (plus) {
      float p[V];
      load_piece<V, wide>(plus.row(r) + j, count, 0, p);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] += p[i];
    }
    store_piece<V, wide>(v, out.row(r) + j, count);
  });
}

template <typename X, typename Plus, typename Out>
void add_typed(CudaStream& cuda, const char* op, const Matrix& x, const Matrix& plus,
               const Matrix& out) {
  constexpr int kPiece = kPieceOf<X, Plus, Out>;
  const RowCover cover = cover_rows(out.rows, out.cols, kPiece);
  with_flag(all_wide(kPiece, x, plus, out), [&](auto wide) {
    launch(cuda, op, add_kernel<X, Plus, Out, wide.value>, cover.grid, cover.block, 0,
           rows_of<const X>(x), rows_of<const Plus>(plus), rows_of<Out>(out), out.rows, out.cols);
  });
}

bool gapless(const Matrix& m) { return !m || m.rows <= 1 || m.ld == m.cols; }
Matrix one_row(const Matrix& m) { return {m.data, m.dtype, 1, m.rows * m.cols, m.rows * m.cols}; }

// out = x (+ plus).
void add(CudaStream& cuda, const char* op, Matrix x, Matrix plus, Matrix out) {
  if (gapless(x) && gapless(plus) && gapless(out) && out.rows > 0) {
    x = one_row(x);
    if (plus) plus = one_row(plus);
    out = one_row(out);
  }
  with_dtype(x.dtype, [&](auto x_type) {
    with_dtype(out.dtype, [&](auto out_type) {
      using X = decltype(x_type);
      using Out = decltype(out_type);
      if (!plus) return add_typed<X, X, Out>(cuda, op, x, plus, out);
      with_dtype(plus.dtype, [&](auto plus_type) {
        add_typed<X, decltype(plus_type), Out>(cuda, op, x, plus, out);
      });
    });
  });
}

Matrix as_row(const Vector& v) { return {v.data, v.dtype, 1, v.count, v.count}; }

}  // namespace

void cuda_copy(Stream& stream, const CopyArgs& args) {
  const OpRecord what = describe(args);
  TUTTI_CHECK(args.scale == 1, "copy: scale {} is not supported on cuda", args.scale);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const bool in_place = !args.plus && args.x.data == args.out.data &&
                        args.x.dtype == args.out.dtype && args.x.ld == args.out.ld;
  if (!in_place) add(cuda, what.op, args.x, args.plus, args.out);
  record(cuda, what, begin);
}

void cuda_convert(Stream& stream, const ConvertArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  if (args.x.dtype == args.out.dtype) {
    if (args.x.count > 0) {
      cuda_check(cudaMemcpyAsync(args.out.data, args.x.data, static_cast<size_t>(args.x.bytes()),
                                 cudaMemcpyDefault, cuda.handle()),
                 "cudaMemcpyAsync", what.op);
    }
  } else {
    add(cuda, what.op, as_row(args.x), {}, as_row(args.out));
  }
  record(cuda, what, begin);
}

}  // namespace tutti::engine
