// Forward: a block has a tile of queries of one head and loops over the keys they attend to,
// keeping maximum, sum and weighted values of each row (Milakov & Gimelshein 2018; Dao et al.
// 2022).
#include "tutti/engine/cuda/attention.h"
#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/attention_tile.h"
#include "tutti/engine/cuda/launch.h"

namespace tutti::engine {
namespace {

template <typename T, typename Out>
struct Forward {
  int64_t queries, past, keys_end, query_capacity, first_query, key_capacity;
  int64_t heads, group;  // group: query heads of a key/value head
  int dim;
  float scale;
  Rows<const T> q, keys, values;
  Rows<Out> out;
  float* lse;  // optional
  bool merge;
  const int32_t* starts;  // optional
};

// Shared memory: queries and keys (then values) [edge][dim + 1], probabilities [edge][edge + 1].
template <typename T, typename Out, int M, int C>
__global__ void __launch_bounds__(kTileThreads) forward_kernel(Forward<T, Out> p) {
  constexpr int kEdge = kTileEdge * M;
  auto* shared = dynamic_shared<float>();
  float* q_tile = shared;
  float* kv_tile = q_tile + kEdge * (p.dim + 1);
  float* p_tile = kv_tile + kEdge * (p.dim + 1);
  // The last tiles, which have the most work, start first.
  const int64_t first = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kEdge;
  const int64_t head = blockIdx.y;
  const int64_t sequence = blockIdx.z;
  const int64_t kv_column = head / p.group * p.dim;
  const int64_t query_base = sequence * p.query_capacity + p.first_query;
  const Rows<const T> q{p.q.data + query_base * p.q.ld + head * p.dim, p.q.ld};
  const Rows<const T> keys{p.keys.data + sequence * p.key_capacity * p.keys.ld + kv_column,
                           p.keys.ld};
  const Rows<const T> values{p.values.data + sequence * p.key_capacity * p.values.ld + kv_column,
                             p.values.ld};
  const int32_t* starts = p.starts == nullptr ? nullptr : p.starts + query_base;

  // Row y + 16 i attends to keys [from, to).
  int64_t from[M];
  int64_t to[M];
#pragma unroll
  for (int i = 0; i < M; ++i) {
    const int64_t query = first + tile_y() + kTileEdge * i;
    const bool there = query < p.queries;
    from[i] = there && starts != nullptr ? starts[query] : 0;
    to[i] = there ? min(p.past + query + 1, p.keys_end) : 0;
  }
  const int64_t last = min(first + kEdge, p.queries) - 1;
  const int64_t key_begin = starts == nullptr ? 0 : starts[first] / kEdge * kEdge;
  const int64_t key_end = min(p.past + last + 1, p.keys_end);

  float highest[M];
  float total[M];
  float sums[M][C];
#pragma unroll
  for (int i = 0; i < M; ++i) {
    highest[i] = -INFINITY;
    total[i] = 0;
#pragma unroll
    for (int c = 0; c < C; ++c) sums[i][c] = 0;
  }
  load_tile<kEdge>(q, first, p.queries, p.dim, q_tile);
  for (int64_t key = key_begin; key < key_end; key += kEdge) {
    __syncthreads();  // all threads are done with the values of the previous tile
    load_tile<kEdge>(keys, key, key_end, p.dim, kv_tile);
    __syncthreads();
    float scores[M][M] = {};
    multiply_rows<M>(q_tile, kv_tile, p.dim, scores);
#pragma unroll
    for (int i = 0; i < M; ++i) {
      float most = highest[i];
#pragma unroll
      for (int j = 0; j < M; ++j) {
        const int64_t at = key + tile_x() + kTileEdge * j;
        scores[i][j] = at >= from[i] && at < to[i] ? scores[i][j] * p.scale : -INFINITY;
        most = fmaxf(most, scores[i][j]);
      }
      most = reduce_row(most, [](float a, float b) { return fmaxf(a, b); });
      const float shift = most == -INFINITY ? 0 : most;  // no keys yet
      const float keep = expf(highest[i] - shift);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < M; ++j) {
        const float weight = expf(scores[i][j] - shift);
        sum += weight;
        p_tile[(tile_y() + kTileEdge * i) * (kEdge + 1) + tile_x() + kTileEdge * j] = weight;
      }
      sum = reduce_row(sum, [](float a, float b) { return a + b; });
      total[i] = total[i] * keep + sum;
      highest[i] = most;
#pragma unroll
      for (int c = 0; c < C; ++c) sums[i][c] *= keep;
    }
    __syncthreads();  // all scores are computed: values replace the keys
    load_tile<kEdge>(values, key, key_end, p.dim, kv_tile);
    __syncthreads();
    multiply_tile<M, C, false>(p_tile, kv_tile, p.dim, sums);
  }

  float* lse_row = p.lse == nullptr ? nullptr
                                    : p.lse + (sequence * p.heads + head) * p.query_capacity +
                                          p.first_query + first + tile_y();
  float lse_before[M] = {};
  if (p.merge) {
#pragma unroll
    for (int i = 0; i < M; ++i) {
      if (first + tile_y() + kTileEdge * i < p.queries) lse_before[i] = lse_row[kTileEdge * i];
    }
    __syncthreads();  // 16 threads read it before one of them overwrites it
  }
#pragma unroll
  for (int i = 0; i < M; ++i) {
    const int64_t query = first + tile_y() + kTileEdge * i;
    if (query >= p.queries) continue;
    float lse = highest[i] + logf(total[i]);
    float weight = total[i] > 0 ? 1.0F / total[i] : 0;  // when merging a row may have no keys
    float weight_before = 0;
    if (p.merge) {
      const float most = fmaxf(lse_before[i], lse);
      const float merged = most + logf(expf(lse_before[i] - most) + expf(lse - most));
      weight *= expf(lse - merged);
      weight_before = expf(lse_before[i] - merged);
      lse = merged;
    }
    if (lse_row != nullptr && tile_x() == 0) lse_row[kTileEdge * i] = lse;
    Out* out = p.out.row(query_base + query) + head * p.dim;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = tile_x() + kTileEdge * c;
      if (column >= p.dim) continue;
      float value = sums[i][c] * weight;
      if (p.merge) value += weight_before * widen(out[column]);
      narrow(value, out[column]);
    }
  }
}

template <typename T, typename Out, int M, int C>
void launch_forward(CudaStream& stream, const char* op, const Attend& args) {
  constexpr int kEdge = kTileEdge * M;
  const Forward<T, Out> p{
      .queries = args.queries,
      .past = args.past,
      .keys_end = args.keys_end(),
      .query_capacity = args.query_capacity > 0 ? args.query_capacity : args.queries,
      .first_query = args.first_query,
      .key_capacity = args.key_capacity,
      .heads = args.heads,
      .group = args.heads / args.kv_heads,
      .dim = static_cast<int>(args.head_dim),
      .scale = args.scale,
      .q = rows_of<const T>(args.q),
      .keys = rows_of<const T>(args.keys),
      .values = rows_of<const T>(args.values),
      .out = rows_of<Out>(args.out),
      .lse = data_of<float>(args.lse),
      .merge = args.merge,
      .starts = args.starts};
  const auto floats = static_cast<size_t>(2 * kEdge * (p.dim + 1) + kEdge * (kEdge + 1));
  launch(stream, op, forward_kernel<T, Out, M, C>,
         dim3(blocks_for(args.queries, kEdge), static_cast<unsigned>(args.heads),
              static_cast<unsigned>(args.batch)),
         dim3(kTileThreads), floats * sizeof(float), p);
}

}  // namespace

void attend(CudaStream& stream, const char* op, const Attend& args) {
  TUTTI_CHECK(args.head_dim <= kPlainHeadDim, "{}: head size {}, at most {}", op, args.head_dim,
              kPlainHeadDim);
  TUTTI_CHECK(!args.merge || args.lse, "{}: merging needs a log-sum-exp", op);
  with_dtype(args.q.dtype, [&](auto type) {
    with_dtype(args.out.dtype, [&](auto out_type) {
      using T = decltype(type);
      using Out = decltype(out_type);
      if constexpr (std::is_same_v<T, Out> || std::is_same_v<Out, float>) {
        if (args.head_dim <= 64) return launch_forward<T, Out, 4, 4>(stream, op, args);
        if (args.head_dim <= 128) return launch_forward<T, Out, 4, 8>(stream, op, args);
        return launch_forward<T, Out, 2, 16>(stream, op, args);
      } else {
        TUTTI_CHECK(false, "{}: {} to {} is not supported", op, dtype_name(args.q.dtype),
                    dtype_name(args.out.dtype));
      }
    });
  });
}

std::vector<int32_t> read_starts(CudaStream& stream, const Vector& starts) {
  if (!starts || stream.recorder() == nullptr) return {};
  std::vector<int32_t> out(static_cast<size_t>(starts.count));
  stream.transfer(out.data(), starts.data, starts.bytes());
  stream.synchronize();
  return out;
}

void attention_plain_forward(CudaStream& stream, const AttentionForwardArgs& args) {
  attend(stream, "attention_forward", attend_of(args));
}

}  // namespace tutti::engine
