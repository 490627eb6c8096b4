// Products of experts whose numbers of rows only the device knows (moe_ops.h states the contract).
// The grid covers any split of the rows, with one tile more per group than the rows fill. Each
// block looks up its tile and group; most of the extra blocks have none.
#include <vector>

#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/tile_product.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/row_groups.h"

namespace tutti::engine {
namespace {

using tile::kThreads;
using tile::Operand;
using tile::Product;
using tile::Sums;
using tile::TileShape;

// The rows and group of block `tile`, with the groups' tiles of `edge` rows numbered consecutively.
struct GroupTile {
  int64_t group = -1;  // none
  int64_t begin = 0, end = 0;
};
__device__ GroupTile find_tile(const RowGroups& groups, int64_t tile, int edge) {
  const int lane = threadIdx.x % 32;
  int64_t counted = 0;
  for (int64_t first = 0; first < groups.count(); first += 32) {
    const int64_t group = first + lane;
    const int64_t begin = group < groups.count() ? groups.begin(group) : 0;
    const int64_t end = group < groups.count() ? groups.end(group) : 0;
    const int64_t tiles = (end - begin + edge - 1) / edge;
    int64_t sum = tiles;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const int64_t lower = __shfl_up_sync(kAllLanes, sum, apart);
      if (lane >= apart) sum += lower;
    }
    const int64_t before = counted + sum - tiles;
    const unsigned found = __ballot_sync(kAllLanes, tile >= before && tile < before + tiles);
    if (found != 0) {
      const int owner = __ffs(static_cast<int>(found)) - 1;
      GroupTile out;
      out.group = first + owner;
      const int64_t row = begin + (tile - before) * edge;
      out.begin = __shfl_sync(kAllLanes, row, owner);
      out.end = __shfl_sync(kAllLanes, end, owner);
      return out;
    }
    counted += __shfl_sync(kAllLanes, sum, 31);
  }
  return {};
}

__device__ void check_used(const char* op, const RowGroups& groups) {
  for (int64_t piece = threadIdx.x; piece < groups.pieces; piece += kThreads) {
    const int64_t used = groups.used(piece);
    if (used > groups.piece_rows) device_fail(op, used, groups.piece_rows);
  }
}

template <typename T, bool b_transposed>
__global__ void __launch_bounds__(kThreads)
    grouped_kernel(Rows<const T> a, int64_t depth, Rows<const T> b, int64_t height, int64_t experts,
                   RowGroups groups, Rows<T> c, int64_t n, bool wide_a, bool wide_b, bool wide_c) {
  using P = Product<T, false, b_transposed>;
  alignas(32) __shared__ unsigned char shared[P::kBytes];
  check_used("grouped_gemm: rows used, rows", groups);
  const GroupTile tile = find_tile(groups, blockIdx.y, P::kEdge);
  if (tile.group < 0) return;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * P::kEdge;
  const T* weights = b.row(tile.group % experts * height);
  const Operand<T> left{a.row(tile.begin), a.ld, tile.end - tile.begin, depth};
  const Operand<T> right{weights, b.ld, height, b_transposed ? depth : n};
  Sums<T, false, b_transposed> sums;
  sums.clear();
  P::add(sums, left, 0, right, column, depth, wide_a, wide_b, reinterpret_cast<T*>(shared));
  __syncthreads();
  sums.for_each(reinterpret_cast<float*>(shared), [&](int row, int col, auto& v) {
    constexpr int V = sizeof(v) / sizeof(float);
    if (tile.begin + row >= tile.end || column + col >= n) return;
    T* out = c.row(tile.begin + row) + column + col;
    if (wide_c) {
      store_piece<V, true>(v, out, n - column - col);
    } else {
      store_piece<V, false>(v, out, n - column - col);
    }
  });
}

// Expert blockIdx.z: d_weight = beta * d_weight + dy^T x over its groups, in order.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    weight_kernel(Rows<const T> dy, Rows<const T> x, int64_t experts, RowGroups groups, float beta,
                  Rows<float> d_weight, int64_t m, int64_t n, bool wide_dy, bool wide_x,
                  bool wide_out) {
  using P = Product<T, true, false>;
  alignas(32) __shared__ unsigned char shared[P::kBytes];
  check_used("grouped_gemm_weight: rows used, rows", groups);
  const int64_t expert = blockIdx.z;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * P::kEdge;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * P::kEdge;
  Sums<T, true, false> sums;
  sums.clear();
  for (int64_t group = expert; group < groups.count(); group += experts) {
    const int64_t begin = groups.begin(group);
    const int64_t used = groups.end(group) - begin;
    if (used <= 0) continue;
    const Operand<T> left{dy.row(begin), dy.ld, used, m};
    const Operand<T> right{x.row(begin), x.ld, used, n};
    P::add(sums, left, first_row, right, first_col, used, wide_dy, wide_x,
           reinterpret_cast<T*>(shared));
  }
  __syncthreads();
  sums.for_each(reinterpret_cast<float*>(shared), [&](int row, int col, auto& v) {
    constexpr int V = sizeof(v) / sizeof(float);
    if (first_row + row >= m || first_col + col >= n) return;
    float* out = d_weight.row(expert * m + first_row + row) + first_col + col;
    const int64_t count = n - first_col - col;
    if (beta != 0) {
      float before[V];
      load_piece<V, false>(out, count, 0, before);
#pragma unroll
      for (int e = 0; e < V; ++e) v[e] += before[e];
    }
    if (wide_out) {
      store_piece<V, true>(v, out, count);
    } else {
      store_piece<V, false>(v, out, count);
    }
  });
}

// Whether every row allows 16-byte vector loads and stores. This includes the blocks of experts,
// which begin at rows.
bool wide_operand(const Matrix& m) {
  return wide_rows(16 / static_cast<int>(dtype_bytes(m.dtype)), m);
}

// A recorded product includes the number of used rows. The host reads the offsets only here, where
// a recorder synchronises the stream anyway.
template <typename Args>
void note_used_rows(CudaStream& cuda, OpRecord& what, const Args& args, int64_t rows) {
  if (cuda.recorder() == nullptr) return;
  std::vector<int32_t> offsets(static_cast<size_t>(args.offsets.count));
  cuda.transfer(offsets.data(), args.offsets.data, args.offsets.bytes());
  cuda.synchronize();
  const RowGroups groups = row_groups(args, rows, offsets.data());
  int64_t used = 0;
  for (int64_t piece = 0; piece < groups.pieces; ++piece) used += groups.used(piece);
  add_used_rows(what, args, used);
}

}  // namespace

void cuda_grouped_gemm(Stream& stream, const GroupedGemmArgs& args) {
  OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  note_used_rows(cuda, what, args, args.a.rows);
  const double begin = begin_op(cuda);
  const RowGroups groups = row_groups(args, args.a.rows);
  const int64_t rows = args.a.rows;
  const int64_t k = args.a.cols;
  const int64_t n = args.c.cols;
  if (rows > 0 && n > 0 && k > 0) {
    with_dtype(args.a.dtype, [&](auto type) {
      using T = decltype(type);
      constexpr int kEdge = TileShape<T>::kEdge;
      with_flag(args.transpose_b, [&](auto transposed) {
        const dim3 grid(blocks_for(n, kEdge), static_cast<unsigned>(rows / kEdge + groups.count()));
        launch(cuda, what.op, grouped_kernel<T, transposed.value>, grid, dim3(kThreads), 0,
               rows_of<const T>(args.a), k, rows_of<const T>(args.b), args.transpose_b ? n : k,
               expert_count(args), groups, rows_of<T>(args.c), n, wide_operand(args.a),
               wide_operand(args.b), wide_operand(args.c));
      });
    });
  }
  record(cuda, what, begin);
}

void cuda_grouped_gemm_weight(Stream& stream, const GroupedGemmWeightArgs& args) {
  OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  note_used_rows(cuda, what, args, args.x.rows);
  const double begin = begin_op(cuda);
  const int64_t m = args.dy.cols;
  const int64_t n = args.x.cols;
  if (m > 0 && n > 0) {
    with_dtype(args.x.dtype, [&](auto type) {
      using T = decltype(type);
      constexpr int kEdge = TileShape<T>::kEdge;
      const dim3 grid(blocks_for(n, kEdge), blocks_for(m, kEdge),
                      static_cast<unsigned>(expert_count(args)));
      launch(cuda, what.op, weight_kernel<T>, grid, dim3(kThreads), 0, rows_of<const T>(args.dy),
             rows_of<const T>(args.x), expert_count(args), row_groups(args, args.x.rows), args.beta,
             rows_of<float>(args.d_weight), m, n, wide_operand(args.dy), wide_operand(args.x),
             wide_operand(args.d_weight));
    });
  }
  record(cuda, what, begin);
}

}  // namespace tutti::engine
