// Backward: with P the probabilities, recomputed from the log-sum-exp of the forward pass,
//   dV = P^T dO,  dS = P (dO V^T - delta) scale,  dQ = dS K,  dK = dS^T Q.
// Three kernels, so that every sum has one owner: delta; the keys' gradients, a block per tile of
// keys over the queries (of all heads that share them) that attend to it; the queries' gradients, a
// block per tile of queries over the keys that it attends to.
#include "tutti/engine/cuda/attention.h"
#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/attention_tile.h"
#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/launch.h"

namespace tutti::engine {
namespace {

template <typename T, typename Out>
struct Backward {
  int64_t rows;  // of a sequence, both queries and keys
  int64_t heads, group;
  int dim;
  float scale;
  bool causal;
  int64_t first_query, key_count;  // only if not causal
  const int32_t* starts;           // optional, non-decreasing
  Rows<const T> q, keys, values, d_out;
  const float* lse;
  const float* delta;
  bool add_queries, add_keys;
  Rows<Out> d_q, d_keys, d_values;

  // Query row `query` of a sequence attends to keys [from, to).
  __device__ int64_t from(int64_t sequence, int64_t query) const {
    return starts != nullptr ? starts[sequence * rows + query] : 0;
  }
  __device__ int64_t to(int64_t query) const {
    if (causal) return query + 1;
    return query >= first_query ? key_count : 0;
  }
};

// Columns [column, ...) of the rows of a sequence.
template <typename T>
__device__ Rows<T> part(const Rows<T>& all, int64_t first_row, int64_t column) {
  return {all.data + first_row * all.ld + column, all.ld};
}

// delta[b, a, t] = d_out . out of a row and head; one warp each.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    delta_kernel(Rows<const T> out, Rows<const T> d_out, int64_t batch, int64_t rows, int64_t heads,
                 int dim, float* delta) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kTileThreads / 32) + threadIdx.x / 32;
  if (at >= batch * heads * rows) return;
  const int64_t t = at % rows;
  const int64_t head = at / rows % heads;
  const int64_t row = at / rows / heads * rows + t;
  const T* a = out.row(row) + head * dim;
  const T* b = d_out.row(row) + head * dim;
  float sum = 0;
  for (int c = threadIdx.x % 32; c < dim; c += 32) sum += widen(a[c]) * widen(b[c]);
  sum = warp_reduce<Sum>(sum);
  if (threadIdx.x % 32 == 0) delta[at] = sum;
}

// Computes P and dS [edge][edge + 1], whose rows are queries, from tiles of queries, keys, values
// and d_out. p_tile may be null.
template <int M, typename T, typename Out>
__device__ void make_tiles(const Backward<T, Out>& p, int64_t sequence, int64_t head, int64_t query,
                           int64_t key, const float* q_tile, const float* k_tile,
                           const float* v_tile, const float* d_tile, float* p_tile, float* s_tile) {
  constexpr int kEdge = kTileEdge * M;
  float scores[M][M] = {};
  float products[M][M] = {};
  multiply_rows<M>(q_tile, k_tile, p.dim, scores);
  multiply_rows<M>(d_tile, v_tile, p.dim, products);
#pragma unroll
  for (int i = 0; i < M; ++i) {
    const int64_t row = query + tile_y() + kTileEdge * i;
    const bool there = row < p.rows;
    const int64_t from = there ? p.from(sequence, row) : 0;
    const int64_t to = there ? p.to(row) : 0;
    const int64_t at = (sequence * p.heads + head) * p.rows + row;
    const float lse = there ? p.lse[at] : 0;
    const float delta = there ? p.delta[at] : 0;
#pragma unroll
    for (int j = 0; j < M; ++j) {
      const int64_t column = key + tile_x() + kTileEdge * j;
      const bool seen = column >= from && column < to;
      const float weight = seen ? expf(scores[i][j] * p.scale - lse) : 0;
      const int element = (tile_y() + kTileEdge * i) * (kEdge + 1) + tile_x() + kTileEdge * j;
      if (p_tile != nullptr) p_tile[element] = weight;
      s_tile[element] = seen ? weight * (products[i][j] - delta) * p.scale : 0;
    }
  }
}

// Rows first + y + 16 i of out (+)= sums.
template <int M, int C, typename Out>
__device__ void store_sums(const Rows<Out>& out, int64_t first, int64_t end, int dim, bool add,
                           const float (&sums)[M][C]) {
#pragma unroll
  for (int i = 0; i < M; ++i) {
    const int64_t row = first + tile_y() + kTileEdge * i;
    if (row >= end) continue;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = tile_x() + kTileEdge * c;
      if (column >= dim) continue;
      Out& at = out.row(row)[column];
      narrow(add ? widen(at) + sums[i][c] : sums[i][c], at);
    }
  }
}

// Shared memory of both kernels: four operands [edge][dim + 1], then P (keys only) and dS
// [edge][edge + 1].
template <typename T, typename Out, int M, int C>
__global__ void __launch_bounds__(kTileThreads) keys_kernel(Backward<T, Out> p) {
  constexpr int kEdge = kTileEdge * M;
  auto* shared = dynamic_shared<float>();
  const int operand = kEdge * (p.dim + 1);
  float* k_tile = shared;
  float* v_tile = k_tile + operand;
  float* q_tile = v_tile + operand;
  float* d_tile = q_tile + operand;
  float* p_tile = d_tile + operand;
  float* s_tile = p_tile + kEdge * (kEdge + 1);
  const int64_t key = static_cast<int64_t>(blockIdx.x) * kEdge;
  const int64_t key_end = min(key + kEdge, p.rows);
  const int64_t kv_head = blockIdx.y;
  const int64_t sequence = blockIdx.z;
  const int64_t base = sequence * p.rows;
  load_tile<kEdge>(part(p.keys, base, kv_head * p.dim), key, p.rows, p.dim, k_tile);
  load_tile<kEdge>(part(p.values, base, kv_head * p.dim), key, p.rows, p.dim, v_tile);
  float d_keys[M][C] = {};
  float d_values[M][C] = {};
  // Causal: queries before the tile's first key do not attend to it. Otherwise queries from
  // first_query on, in complete tiles, or none if the tile has no keys below key_count.
  int64_t begin = p.causal ? key : p.first_query / kEdge * kEdge;
  if (!p.causal && key >= p.key_count) begin = p.rows;
  for (int64_t head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head) {
    for (int64_t query = begin; query < p.rows; query += kEdge) {
      // Starts are non-decreasing: all later queries start after the tile.
      if (p.starts != nullptr && p.from(sequence, query) >= key_end) break;
      __syncthreads();  // all threads are done with the previous tiles
      load_tile<kEdge>(part(p.q, base, head * p.dim), query, p.rows, p.dim, q_tile);
      load_tile<kEdge>(part(p.d_out, base, head * p.dim), query, p.rows, p.dim, d_tile);
      __syncthreads();
      make_tiles<M>(p, sequence, head, query, key, q_tile, k_tile, v_tile, d_tile, p_tile, s_tile);
      __syncthreads();
      multiply_tile<M, C, true>(p_tile, d_tile, p.dim, d_values);
      multiply_tile<M, C, true>(s_tile, q_tile, p.dim, d_keys);
    }
  }
  store_sums(part(p.d_keys, base, kv_head * p.dim), key, p.rows, p.dim, p.add_keys, d_keys);
  store_sums(part(p.d_values, base, kv_head * p.dim), key, p.rows, p.dim, p.add_keys, d_values);
}

template <typename T, typename Out, int M, int C>
__global__ void __launch_bounds__(kTileThreads) queries_kernel(Backward<T, Out> p) {
  constexpr int kEdge = kTileEdge * M;
  auto* shared = dynamic_shared<float>();
  const int operand = kEdge * (p.dim + 1);
  float* q_tile = shared;
  float* d_tile = q_tile + operand;
  float* k_tile = d_tile + operand;
  float* v_tile = k_tile + operand;
  float* s_tile = v_tile + operand;
  const int64_t query = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kEdge;
  const int64_t head = blockIdx.y;
  const int64_t kv_column = head / p.group * p.dim;
  const int64_t sequence = blockIdx.z;
  const int64_t base = sequence * p.rows;
  load_tile<kEdge>(part(p.q, base, head * p.dim), query, p.rows, p.dim, q_tile);
  load_tile<kEdge>(part(p.d_out, base, head * p.dim), query, p.rows, p.dim, d_tile);
  float d_q[M][C] = {};
  const int64_t last = min(query + kEdge, p.rows) - 1;
  const int64_t end = p.to(last);
  for (int64_t key = p.from(sequence, query) / kEdge * kEdge; key < end; key += kEdge) {
    __syncthreads();  // all threads are done with the previous tiles
    load_tile<kEdge>(part(p.keys, base, kv_column), key, p.rows, p.dim, k_tile);
    load_tile<kEdge>(part(p.values, base, kv_column), key, p.rows, p.dim, v_tile);
    __syncthreads();
    make_tiles<M>(p, sequence, head, query, key, q_tile, k_tile, v_tile, d_tile,
                  static_cast<float*>(nullptr), s_tile);
    __syncthreads();
    multiply_tile<M, C, false>(s_tile, k_tile, p.dim, d_q);
  }
  store_sums(part(p.d_q, base, head * p.dim), query, p.rows, p.dim, p.add_queries, d_q);
}

template <typename T>
void launch_delta(CudaStream& stream, const char* op, const AttendBackward& args) {
  launch(stream, op, delta_kernel<T>,
         dim3(blocks_for(args.batch * args.heads * args.rows, kTileThreads / 32)),
         dim3(kTileThreads), 0, rows_of<const T>(args.out), rows_of<const T>(args.d_out),
         args.batch, args.rows, args.heads, static_cast<int>(args.head_dim),
         args.delta.as<float>());
}

template <typename T, typename Out, int M, int C>
void launch_backward(CudaStream& stream, const char* op, const AttendBackward& args) {
  constexpr int kEdge = kTileEdge * M;
  const Backward<T, Out> p{.rows = args.rows,
                           .heads = args.heads,
                           .group = args.heads / args.kv_heads,
                           .dim = static_cast<int>(args.head_dim),
                           .scale = args.scale,
                           .causal = args.causal,
                           .first_query = args.first_query,
                           .key_count = args.key_count,
                           .starts = args.starts,
                           .q = rows_of<const T>(args.q),
                           .keys = rows_of<const T>(args.keys),
                           .values = rows_of<const T>(args.values),
                           .d_out = rows_of<const T>(args.d_out),
                           .lse = args.lse.as<float>(),
                           .delta = args.delta.as<float>(),
                           .add_queries = args.add_queries,
                           .add_keys = args.add_keys,
                           .d_q = rows_of<Out>(args.d_q),
                           .d_keys = rows_of<Out>(args.d_keys),
                           .d_values = rows_of<Out>(args.d_values)};
  if (args.out) launch_delta<T>(stream, op, args);
  const auto tile = static_cast<size_t>(kEdge * (kEdge + 1));
  const auto operands = static_cast<size_t>(4 * kEdge * (p.dim + 1));
  const unsigned tiles = blocks_for(args.rows, kEdge);
  const auto batch = static_cast<unsigned>(args.batch);
  launch(stream, op, keys_kernel<T, Out, M, C>,
         dim3(tiles, static_cast<unsigned>(args.kv_heads), batch), dim3(kTileThreads),
         (operands + 2 * tile) * sizeof(float), p);
  launch(stream, op, queries_kernel<T, Out, M, C>,
         dim3(tiles, static_cast<unsigned>(args.heads), batch), dim3(kTileThreads),
         (operands + tile) * sizeof(float), p);
}

}  // namespace

void attend_backward(CudaStream& stream, const char* op, const AttendBackward& args) {
  TUTTI_CHECK(args.head_dim <= kPlainHeadDim, "{}: head size {}, at most {}", op, args.head_dim,
              kPlainHeadDim);
  with_dtype(args.q.dtype, [&](auto type) {
    with_dtype(args.d_q.dtype, [&](auto out_type) {
      using T = decltype(type);
      using Out = decltype(out_type);
      if constexpr (std::is_same_v<T, Out> || std::is_same_v<Out, float>) {
        if (args.head_dim <= 64) return launch_backward<T, Out, 4, 4>(stream, op, args);
        if (args.head_dim <= 128) return launch_backward<T, Out, 2, 8>(stream, op, args);
        return launch_backward<T, Out, 1, 16>(stream, op, args);
      } else {
        TUTTI_CHECK(false, "{}: {} to {} is not supported", op, dtype_name(args.q.dtype),
                    dtype_name(args.d_q.dtype));
      }
    });
  });
}

void attend_delta(CudaStream& stream, const char* op, const AttendBackward& args) {
  with_dtype(args.q.dtype, [&](auto type) { launch_delta<decltype(type)>(stream, op, args); });
}

void attention_plain_backward(CudaStream& stream, const AttentionBackwardArgs& args) {
  attend_backward(stream, "attention_backward", attend_of(args));
}

}  // namespace tutti::engine
