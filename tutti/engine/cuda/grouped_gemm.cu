// Products of experts whose numbers of rows only the device knows (moe_ops.h states the contract).
// The grid has room for any division of the rows: one tile more per group than the rows fill. Each
// block looks up which tile of which group it has, and most of the spare ones have none.
//
// bf16 runs on the matrix units (WMMA 16 x 16 x 16, f32 sums) with tiles of 128 x 128 x 32, f32 on
// the ordinary ones with 64 x 64 x 16. The next operands are on their way to registers while those
// in shared memory are multiplied.
#include <mma.h>

#include <vector>

#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/row_groups.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct TileShape;
template <>
struct TileShape<bf16> {
  static constexpr int kEdge = 128, kDepth = 32;
};
template <>
struct TileShape<float> {
  static constexpr int kEdge = 64, kDepth = 16;
};

// An operand as it lies in memory: [rows, cols] from data on; elements beyond are zero.
template <typename T>
struct Operand {
  const T* data;
  int64_t ld, rows, cols;
};

// One R x C tile of an operand on its way from memory to shared memory, whose rows are kPad longer.
template <typename T, int R, int C>
struct Piecewise {
  static constexpr int kElements = 16 / sizeof(T);
  static constexpr int kStride = C + kElements;
  static constexpr int kCount = R * C / kElements / kThreads;
  static_assert(R * C % (kElements * kThreads) == 0);
  uint4 pieces[kCount];

  __device__ void load(const Operand<T>& from, int64_t first_row, int64_t first_col, bool wide) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = (i * kThreads + static_cast<int>(threadIdx.x)) * kElements;
      const int64_t row = first_row + at / C;
      const int64_t col = first_col + at % C;
      const T* p = from.data + row * from.ld + col;
      pieces[i] = make_uint4(0, 0, 0, 0);
      if (row >= from.rows) continue;
      if (wide && col + kElements <= from.cols) {
        pieces[i] = *reinterpret_cast<const uint4*>(p);
        continue;
      }
      T parts[kElements] = {};
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        if (col + e < from.cols) parts[e] = p[e];
      }
      memcpy(&pieces[i], parts, sizeof parts);
    }
  }
  __device__ void store(T* tile) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = (i * kThreads + static_cast<int>(threadIdx.x)) * kElements;
      *reinterpret_cast<uint4*>(tile + at / C * kStride + at % C) = pieces[i];
    }
  }
};

// Sums of a tile of products on the matrix units: 8 warps, each 64 x 32.
template <bool a_turned, bool b_turned>
struct MatrixSums {
  static constexpr int kRows = 4, kCols = 2;
  using ALayout = std::conditional_t<a_turned, nvcuda::wmma::col_major, nvcuda::wmma::row_major>;
  using BLayout = std::conditional_t<b_turned, nvcuda::wmma::col_major, nvcuda::wmma::row_major>;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums[kRows][kCols];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) nvcuda::wmma::fill_fragment(sums[i][j], 0.0F);
    }
  }
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / 32 / 4 * 64; }
  __device__ static int first_col() { return static_cast<int>(threadIdx.x) / 32 % 4 * 32; }

  template <int a_stride, int b_stride, int depth>
  __device__ void add(const bf16* a_tile, const bf16* b_tile) {
    const auto* a = reinterpret_cast<const __nv_bfloat16*>(a_tile);
    const auto* b = reinterpret_cast<const __nv_bfloat16*>(b_tile);
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16, ALayout>
          left[kRows];
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16, BLayout>
          right[kCols];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int m = first_row() + 16 * i;
        nvcuda::wmma::load_matrix_sync(
            left[i], a_turned ? a + k * a_stride + m : a + m * a_stride + k, a_stride);
      }
#pragma unroll
      for (int j = 0; j < kCols; ++j) {
        const int n = first_col() + 16 * j;
        nvcuda::wmma::load_matrix_sync(
            right[j], b_turned ? b + n * b_stride + k : b + k * b_stride + n, b_stride);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kCols; ++j) {
          nvcuda::wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
        }
      }
    }
  }

  // body(row, first column, 8 sums) for all sums of the tile, through `room` in shared memory,
  // which nobody uses any more: [8][16][16].
  template <typename Body>
  __device__ void for_each(float* room, const Body& body) {
    float* mine = room + threadIdx.x / 32 * 256;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) {
        nvcuda::wmma::store_matrix_sync(mine, sums[i][j], 16, nvcuda::wmma::mem_row_major);
        __syncwarp();
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = mine[lane * 8 + e];
        __syncwarp();
        body(first_row() + 16 * i + lane / 2, first_col() + 16 * j + lane % 2 * 8, v);
      }
    }
  }
};

// The same in f32: 16 x 16 threads, each 4 x 4.
template <bool a_turned, bool b_turned>
struct OrdinarySums {
  float sums[4][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = 0;
    }
  }
  __device__ static int row() { return static_cast<int>(threadIdx.x) / 16 * 4; }
  __device__ static int col() { return static_cast<int>(threadIdx.x) % 16 * 4; }

  template <int a_stride, int b_stride, int depth>
  __device__ void add(const float* a, const float* b) {
#pragma unroll
    for (int k = 0; k < depth; ++k) {
      float left[4];
      float right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = a_turned ? a[k * a_stride + row() + i] : a[(row() + i) * a_stride + k];
        right[i] = b_turned ? b[(col() + i) * b_stride + k] : b[k * b_stride + col() + i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
      }
    }
  }
  template <typename Body>
  __device__ void for_each(float* /*room*/, const Body& body) {
#pragma unroll
    for (int i = 0; i < 4; ++i) body(row() + i, col(), sums[i]);
  }
};

template <typename T, bool a_turned, bool b_turned>
using Sums = std::conditional_t<std::is_same_v<T, bf16>, MatrixSums<a_turned, b_turned>,
                                OrdinarySums<a_turned, b_turned>>;

// Products of tiles of A [m, k] and B [k, n], each lying as it is or turned ([k, m], [n, k]).
template <typename T, bool a_turned, bool b_turned>
struct Product {
  static constexpr int kEdge = TileShape<T>::kEdge;
  static constexpr int kDepth = TileShape<T>::kDepth;
  using APieces = Piecewise<T, a_turned ? kDepth : kEdge, a_turned ? kEdge : kDepth>;
  using BPieces = Piecewise<T, b_turned ? kEdge : kDepth, b_turned ? kDepth : kEdge>;
  static constexpr int kATile = (a_turned ? kDepth : kEdge) * APieces::kStride;
  static constexpr int kBTile = (b_turned ? kEdge : kDepth) * BPieces::kStride;
  static constexpr int kBytes = 2 * (kATile + kBTile) * static_cast<int>(sizeof(T));
  static_assert(kBytes >= 8 * 256 * static_cast<int>(sizeof(float)));

  // sums += rows [m, m + edge) of A times columns [n, n + edge) of B over `depth`.
  __device__ static void add(Sums<T, a_turned, b_turned>& sums, const Operand<T>& a, int64_t m,
                             const Operand<T>& b, int64_t n, int64_t depth, bool wide_a,
                             bool wide_b, T* shared) {
    T* a_tiles[2] = {shared, shared + kATile};
    T* b_tiles[2] = {shared + 2 * kATile, shared + 2 * kATile + kBTile};
    APieces a_next;
    BPieces b_next;
    const auto load = [&](int64_t k) {
      a_next.load(a, a_turned ? k : m, a_turned ? m : k, wide_a);
      b_next.load(b, b_turned ? n : k, b_turned ? k : n, wide_b);
    };
    load(0);
    int turn = 0;
    __syncthreads();  // an earlier call may still read the tiles
    for (int64_t k = 0; k < depth; k += kDepth) {
      a_next.store(a_tiles[turn]);
      b_next.store(b_tiles[turn]);
      __syncthreads();
      if (k + kDepth < depth) load(k + kDepth);
      sums.template add<APieces::kStride, BPieces::kStride, kDepth>(a_tiles[turn], b_tiles[turn]);
      turn ^= 1;
    }
  }
};

// Which rows of which group block number `tile` has, when the groups' tiles of `edge` rows are
// counted one after the other.
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

template <typename T, bool b_turned>
__global__ void __launch_bounds__(kThreads)
    grouped_kernel(Rows<const T> a, int64_t depth, Rows<const T> b, int64_t height, int64_t experts,
                   RowGroups groups, Rows<T> c, int64_t n, bool wide_a, bool wide_b, bool wide_c) {
  using P = Product<T, false, b_turned>;
  __shared__ alignas(32) unsigned char shared[P::kBytes];
  check_used("grouped_gemm: rows used, rows", groups);
  const GroupTile tile = find_tile(groups, blockIdx.y, P::kEdge);
  if (tile.group < 0) return;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * P::kEdge;
  const T* weights = b.row(tile.group % experts * height);
  const Operand<T> left{a.row(tile.begin), a.ld, tile.end - tile.begin, depth};
  const Operand<T> right{weights, b.ld, height, b_turned ? depth : n};
  Sums<T, false, b_turned> sums;
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

// Expert blockIdx.z: d_weight = beta * d_weight + dy^T x over its groups, in their order.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    weight_kernel(Rows<const T> dy, Rows<const T> x, int64_t experts, RowGroups groups, float beta,
                  Rows<float> d_weight, int64_t m, int64_t n, bool wide_dy, bool wide_x,
                  bool wide_out) {
  using P = Product<T, true, false>;
  __shared__ alignas(32) unsigned char shared[P::kBytes];
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

// Pieces of 16 bytes of every row may be moved at once; of each expert's block too, since blocks
// begin at rows.
bool wide_operand(const Matrix& m) {
  return wide_rows(16 / static_cast<int>(dtype_bytes(m.dtype)), m);
}

// A recorded product tells how many rows were used: the only reading of offsets by the host, and
// only where a recorder has the stream wait anyway.
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
      with_flag(args.transpose_b, [&](auto turned) {
        const dim3 grid(blocks_for(n, kEdge), static_cast<unsigned>(rows / kEdge + groups.count()));
        launch(cuda, what.op, grouped_kernel<T, turned.value>, grid, dim3(kThreads), 0,
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
