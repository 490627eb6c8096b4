// Gradients of embedding tables (ops.h states the contract) without atomics, bitwise reproducible.
// Rows are sorted by their table row, equal ones in ascending order. The sorted rows are cut into
// tiles of kTileRows; a block sums the runs of equal rows in its tile. A run within one tile is
// added to the table directly. A run across several tiles leaves a partial sum in each, which a
// second kernel adds in order, so that a token that fills half of a batch costs no more than
// others. Memory bound: d_out once, and 8 bytes per element of the table rows that occur.
#include <cub/device/device_radix_sort.cuh>

#include "tutti/engine/carver.h"
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kTileRows = 32;
constexpr int kThreads = 128;
constexpr int kPiece = 4;
constexpr int64_t kAlignment = 256;                       // of parts of the workspace
constexpr int64_t kColumns = int64_t{kThreads} * kPiece;  // per block

// Maps a row of d_out to a table row.
struct Index {
  const int32_t* given;
  int64_t first, rows;  // of this rank's shard
  int64_t all;          // every index is below it
};

// keys[r]: the table row, or `rows` if another rank has it.
__global__ void keys_kernel(Index index, int64_t n, uint32_t* keys, int32_t* values) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= n) return;
  const int64_t at = index.given[r];
  if (at < 0 || at >= index.all) device_fail("embedding_backward: index of row", at, r);
  const int64_t here = at - index.first;
  keys[r] = static_cast<uint32_t>(here >= 0 && here < index.rows ? here : index.rows);
  values[r] = static_cast<int32_t>(r);
}

template <bool wide>
__device__ void add_to_table(const Rows<float>& table, uint32_t row, int64_t j, int64_t count,
                             const float (&sum)[kPiece]) {
  float v[kPiece];
  float* at = table.row(row) + j;
  load_piece<kPiece, wide>(at, count, 0, v);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) v[i] += sum[i];
  store_piece<kPiece, wide>(v, at, count);
}

// partials [2 * tiles, stride]: row 2t is the contribution of tile t to a run that began in an
// earlier tile, row 2t + 1 to one that begins in tile t and continues in the next.
template <typename T, bool wide>
__global__ void __launch_bounds__(kThreads)
    add_tiles_kernel(Rows<const T> d_out, const uint32_t* keys, const int32_t* order, int64_t n,
                     int64_t cols, uint32_t none, Rows<float> table, float* partials,
                     int64_t stride) {
  __shared__ uint32_t tile_keys[kTileRows];
  __shared__ int32_t tile_rows[kTileRows];
  const int64_t tile = blockIdx.x;
  const int64_t begin = tile * kTileRows;
  const int count = static_cast<int>(min(n - begin, int64_t{kTileRows}));
  if (static_cast<int>(threadIdx.x) < count) {
    tile_keys[threadIdx.x] = keys[begin + threadIdx.x];
    tile_rows[threadIdx.x] = order[begin + threadIdx.x];
  }
  __syncthreads();
  const int64_t j = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kPiece;
  if (j >= cols) return;
  const bool from_before = begin > 0 && keys[begin - 1] == tile_keys[0];
  const bool continues = begin + count < n && keys[begin + count] == tile_keys[count - 1];
  for (int first = 0; first < count;) {
    const uint32_t key = tile_keys[first];
    int last = first + 1;
    while (last < count && tile_keys[last] == key) ++last;
    if (key == none) return;  // the largest key: no later row counts either
    float sum[kPiece] = {};
#pragma unroll 4
    for (int i = first; i < last; ++i) {
      float v[kPiece];
      load_piece<kPiece, wide>(d_out.row(tile_rows[i]) + j, cols - j, 0, v);
#pragma unroll
      for (int e = 0; e < kPiece; ++e) sum[e] += v[e];
    }
    const bool before = first == 0 && from_before;
    const bool after = last == count && continues;
    if (before || after) {
      float* out = partials + (2 * tile + (before ? 0 : 1)) * stride + j;
      store_aligned<kPiece>(sum, out);
    } else {
      add_to_table<wide>(table, key, j, cols - j, sum);
    }
    first = last;
  }
}

// Adds, in order, the partial sums of a run that begins in tile blockIdx.x and continues in the
// next.
template <bool wide>
__global__ void __launch_bounds__(kThreads)
    add_runs_kernel(const uint32_t* keys, int64_t n, int64_t cols, uint32_t none, Rows<float> table,
                    const float* partials, int64_t stride) {
  const int64_t tile = blockIdx.x;
  const int64_t end = (tile + 1) * kTileRows;  // the first sorted row after the tile
  if (end >= n) return;
  const uint32_t key = keys[end];
  if (key == none || keys[end - 1] != key) return;
  // It began earlier if the whole tile and the row before it belong to it.
  if (tile > 0 && keys[end - kTileRows] == key && keys[end - kTileRows - 1] == key) return;
  const int64_t j = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kPiece;
  if (j >= cols) return;
  float sum[kPiece];
  load_aligned<kPiece>(partials + (2 * tile + 1) * stride + j, sum);
  for (int64_t next = tile + 1; next * kTileRows < n && keys[next * kTileRows] == key; ++next) {
    float v[kPiece];
    load_aligned<kPiece>(partials + 2 * next * stride + j, v);
#pragma unroll
    for (int e = 0; e < kPiece; ++e) sum[e] += v[e];
  }
  add_to_table<wide>(table, key, j, cols - j, sum);
}

struct Work {
  uint32_t* keys;
  uint32_t* sorted_keys;
  int32_t* rows;
  int32_t* sorted_rows;
  float* partials;
  char* sort;
};
Work carve(Carver& carver, int64_t n, int64_t tiles, int64_t stride, size_t sort_bytes) {
  return {carver.take<uint32_t>(n),
          carver.take<uint32_t>(n),
          carver.take<int32_t>(n),
          carver.take<int32_t>(n),
          carver.take<float>(2 * tiles * stride),
          carver.take<char>(static_cast<int64_t>(sort_bytes))};
}

// Row r belongs to row (first_row + r) % sequence of the table: sums every sequence-th row in
// order.
template <typename T, bool wide>
__global__ void add_sequences_kernel(Rows<const T> d_out, int64_t n, int64_t cols,
                                     int64_t first_row, int64_t sequence, float beta,
                                     Rows<float> table, int64_t table_rows) {
  for_pieces<kPiece>(table_rows, cols, [&](int64_t position, int64_t j, int64_t count) {
    float sum[kPiece] = {};
    if (position < sequence) {
#pragma unroll 4
      for (int64_t r = (position + sequence - first_row % sequence) % sequence; r < n;
           r += sequence) {
        float v[kPiece];
        load_piece<kPiece, wide>(d_out.row(r) + j, count, 0, v);
#pragma unroll
        for (int e = 0; e < kPiece; ++e) sum[e] += v[e];
      }
    } else if (beta != 0) {
      return;
    }
    float* at = table.row(position) + j;
    if (beta != 0) {
      float before[kPiece];
      load_piece<kPiece, wide>(at, count, 0, before);
#pragma unroll
      for (int e = 0; e < kPiece; ++e) sum[e] += before[e];
    }
    store_piece<kPiece, wide>(sum, at, count);
  });
}

int bits_for(int64_t largest) {
  int bits = 1;
  while ((largest >> bits) != 0) ++bits;
  return bits;
}

// table[index[r]] += d_out[r]; beta 0 clears the table first.
void scatter_add(CudaStream& cuda, const char* op, const Index& index, const Matrix& d_out,
                 float beta, const Matrix& table) {
  if (beta == 0 && table.rows * table.cols > 0) {
    cuda_check(cudaMemset2DAsync(table.data, static_cast<size_t>(table.ld) * sizeof(float), 0,
                                 static_cast<size_t>(table.cols) * sizeof(float),
                                 static_cast<size_t>(table.rows), cuda.handle()),
               "cudaMemset2DAsync", op);
  }
  const int64_t n = d_out.rows;
  const int64_t cols = d_out.cols;
  if (n == 0 || cols == 0) return;
  const int64_t tiles = (n + kTileRows - 1) / kTileRows;
  const int64_t stride = (cols + kPiece - 1) / kPiece * kPiece;
  const int bits = bits_for(table.rows);
  size_t sort_bytes = 0;
  cuda_check(cub::DeviceRadixSort::SortPairs(
                 nullptr, sort_bytes, static_cast<const uint32_t*>(nullptr),
                 static_cast<uint32_t*>(nullptr), static_cast<const int32_t*>(nullptr),
                 static_cast<int32_t*>(nullptr), n, 0, bits, cuda.handle()),
             "cub::DeviceRadixSort", op);
  Carver measure(nullptr, kAlignment);
  carve(measure, n, tiles, stride, sort_bytes);
  Carver carver(cuda.workspace(measure.bytes()), kAlignment);
  const Work work = carve(carver, n, tiles, stride, sort_bytes);
  launch(cuda, op, keys_kernel, dim3(blocks_for(n, kThreads)), dim3(kThreads), 0, index, n,
         work.keys, work.rows);
  cuda_check(
      cub::DeviceRadixSort::SortPairs(work.sort, sort_bytes, work.keys, work.sorted_keys, work.rows,
                                      work.sorted_rows, n, 0, bits, cuda.handle()),
      "cub::DeviceRadixSort", op);
  const dim3 grid(static_cast<unsigned>(tiles), blocks_for(cols, kColumns));
  const auto none = static_cast<uint32_t>(table.rows);
  with_dtype(d_out.dtype, [&](auto type) {
    using T = decltype(type);
    with_flag(all_wide(kPiece, d_out, table), [&](auto wide) {
      launch(cuda, op, add_tiles_kernel<T, wide.value>, grid, dim3(kThreads), 0,
             rows_of<const T>(d_out), work.sorted_keys, work.sorted_rows, n, cols, none,
             rows_of<float>(table), work.partials, stride);
      launch(cuda, op, add_runs_kernel<wide.value>, grid, dim3(kThreads), 0, work.sorted_keys, n,
             cols, none, rows_of<float>(table), work.partials, stride);
    });
  });
}

void add_sequences(CudaStream& cuda, const char* op, const EmbeddingBackwardArgs& args,
                   const Matrix& table) {
  const Matrix& d_out = args.d_out;
  const RowCover cover = cover_rows(table.rows, table.cols, kPiece);
  with_dtype(d_out.dtype, [&](auto type) {
    using T = decltype(type);
    with_flag(all_wide(kPiece, d_out, table), [&](auto wide) {
      launch(cuda, op, add_sequences_kernel<T, wide.value>, cover.grid, cover.block, 0,
             rows_of<const T>(d_out), d_out.rows, d_out.cols, args.first_row, args.sequence,
             args.position_beta, rows_of<float>(table), table.rows);
    });
  });
}

}  // namespace

void cuda_embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  if (args.d_token_table) {
    const Matrix& table = args.d_token_table;
    const Index index{.given = args.tokens.as<int32_t>(),
                      .first = args.first_token,
                      .rows = table.rows,
                      .all = args.vocabulary == 0 ? table.rows : args.vocabulary};
    scatter_add(cuda, what.op, index, args.d_out, args.token_beta, table);
  }
  if (args.d_position_table) {
    const Matrix& table = args.d_position_table;
    if (args.positions) {
      const Index index{args.positions.as<int32_t>(), 0, table.rows, table.rows};
      scatter_add(cuda, what.op, index, args.d_out, args.position_beta, table);
    } else {
      add_sequences(cuda, what.op, args, table);
    }
  }
  record(cuda, what, begin);
}

}  // namespace tutti::engine
