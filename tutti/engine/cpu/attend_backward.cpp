// Causal attention on the CPU, backward (Dao et al. 2022, algorithm 4): probabilities are
// recomputed from the scores and the saved log-sum-exp. Per tile, with S = Q K^T and l = lse:
//   P = exp(scale S - l)      dV += P^T dO      dP = dO V^T
//   dS = P * (dP - delta)     dQ += scale dS K  dK += scale dS^T Q     delta = rowsum(dO * O)
//
// By default a task is a key head of a sequence with its query heads: five products per tile, and
// dQ accumulates in scratch memory. If that leaves threads idle, or needs too much scratch memory,
// dK/dV and dQ are separate tasks that both compute S and dP (seven products). The order of sums is
// the same either way: queries ascending for dK and dV, keys ascending for dQ, so the results are
// bitwise equal.
#include <algorithm>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/engine/cpu/attention.h"
#include "tutti/engine/cpu/parallel.h"

namespace tutti::engine {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kKeyTiles = 4;  // per task; they share the packed queries
// Limit of a thread's dQ, in query tiles times heads. Above it dK/dV and dQ are separate tasks.
constexpr int64_t kMaxQueryGradientBytes = int64_t{16} << 20;

struct Problem {
  const AttendBackward& args;
  const TileOps& ops;
  int64_t group = 1;                       // query heads per key head
  int64_t query_first = 0, query_end = 0;  // queries of a sequence that attend to keys
  int64_t key_end = 0;                     // keys of a sequence that are attended to
  int64_t query_blocks = 0, key_blocks = 0;
  int64_t padded = 0;        // D
  int64_t depth_words = 0;   // D, without padding
  int64_t row_words = 0;     // D, padded
  int64_t value_padded = 0;  // E, and so on
  int64_t value_depth_words = 0;
  int64_t value_row_words = 0;
};

// Part of the work of one key head: key tiles [key_begin, key_end) against query tiles
// [query_begin, query_end) of all its query heads.
struct Part {
  int64_t sequence = 0, kv_head = 0;
  int64_t key_begin = 0, key_end = 0;
  int64_t query_begin = 0, query_end = 0;
  bool want_keys = false;     // writes dK and dV of the key tiles: needs all query tiles
  bool want_queries = false;  // writes dQ of the query tiles: needs all key tiles
};

struct KeyTile {
  int64_t rows = 0;
  uint32_t* keys_by_columns = nullptr;
  uint32_t* values_by_columns = nullptr;
  uint32_t* keys_by_depth = nullptr;
  float* d_keys = nullptr;    // [kTile][padded D]
  float* d_values = nullptr;  // [kTile][padded E]
};

struct Scratch {
  KeyTile key_tiles[kKeyTiles];
  uint32_t* spare = nullptr;
  uint32_t* q = nullptr;  // of one query tile
  uint32_t* q_by_depth = nullptr;
  uint32_t* d_out = nullptr;
  uint32_t* d_out_by_depth = nullptr;
  float* scores = nullptr;  // [kTile][kTile]
  float* dp = nullptr;
  uint32_t* p_by_columns = nullptr;
  uint32_t* ds_by_columns = nullptr;
  uint32_t* ds_by_rows = nullptr;
  float* d_q = nullptr;  // [group][query tiles][kTile][padded D]
};

Scratch carve(Carver& carver, const Problem& p, int64_t query_tiles) {
  const int64_t packed = kTile * p.row_words;
  const int64_t packed_values = kTile * p.value_row_words;
  Scratch s;
  for (KeyTile& tile : s.key_tiles) {
    tile.keys_by_columns = carver.take<uint32_t>(packed);
    tile.values_by_columns = carver.take<uint32_t>(packed_values);
    tile.keys_by_depth = carver.take<uint32_t>(packed);
    tile.d_keys = carver.take<float>(kTile * p.padded);
    tile.d_values = carver.take<float>(kTile * p.value_padded);
  }
  s.spare = carver.take<uint32_t>(std::max(packed, packed_values));
  s.q = carver.take<uint32_t>(packed);
  s.q_by_depth = carver.take<uint32_t>(packed);
  s.d_out = carver.take<uint32_t>(packed_values);
  s.d_out_by_depth = carver.take<uint32_t>(packed_values);
  s.scores = carver.take<float>(kTile * kTile);
  s.dp = carver.take<float>(kTile * kTile);
  if (p.ops.elements_per_word == 1) {
    s.p_by_columns = reinterpret_cast<uint32_t*>(s.scores);
    s.ds_by_columns = s.ds_by_rows = reinterpret_cast<uint32_t*>(s.dp);
  } else {
    const int64_t words = kTile * kTile / p.ops.elements_per_word;
    s.p_by_columns = carver.take<uint32_t>(words);
    s.ds_by_columns = carver.take<uint32_t>(words);
    s.ds_by_rows = carver.take<uint32_t>(words);
  }
  s.d_q = carver.take<float>(p.group * query_tiles * kTile * p.padded);
  return s;
}

TileSource query_tile(const Problem& p, const Matrix& matrix, int64_t sequence, int64_t tile,
                      int64_t head, int64_t width) {
  const int64_t first = p.query_first + tile * kTile;
  return head_rows(matrix, sequence * p.args.rows + first, std::min(kTile, p.query_end - first),
                   head, width);
}

TileSource key_tile(const Problem& p, const Matrix& matrix, int64_t sequence, int64_t tile,
                    int64_t head, int64_t width) {
  const int64_t first = tile * kTile;
  return head_rows(matrix, sequence * p.args.rows + first, std::min(kTile, p.key_end - first), head,
                   width);
}

// The starts of a query tile's rows, or null.
const int32_t* starts_of(const Problem& p, int64_t sequence, int64_t query_tile) {
  if (p.args.starts == nullptr) return nullptr;
  return p.args.starts + sequence * p.args.rows + p.query_first + query_tile * kTile;
}

// The first key tile that this or a later query tile attends to: starts are non-decreasing.
int64_t first_key_tile(const Problem& p, int64_t sequence, int64_t query_tile) {
  const int32_t* starts = starts_of(p, sequence, query_tile);
  return starts == nullptr ? 0 : starts[0] / kTile;
}

// to = factor * tile, or (in f32) to += factor * tile.
void store_tile(const float* tile, int64_t padded, float factor, const TileSource& to, DType dtype,
                bool add) {
  if (add) {
    auto* out = static_cast<float*>(const_cast<void*>(to.data));
    for (int64_t r = 0; r < to.rows; ++r, out += to.ld, tile += padded) {
      for (int64_t c = 0; c < to.cols; ++c) out[c] += factor * tile[c];
    }
    return;
  }
  float factors[kTile];
  std::fill_n(factors, kTile, factor);
  tile_ops(dtype).store(tile, padded, factors, to.rows, to.cols, const_cast<void*>(to.data), to.ld);
}

void load_keys(const Problem& p, const Part& part, int64_t index, uint32_t* spare, KeyTile& tile) {
  const TileSource keys =
      key_tile(p, p.args.keys, part.sequence, index, part.kv_head, p.args.head_dim);
  const TileSource values =
      key_tile(p, p.args.values, part.sequence, index, part.kv_head, p.args.value_dim);
  tile.rows = keys.rows;
  p.ops.pack_columns(keys, spare, tile.keys_by_columns);
  p.ops.pack_columns(values, spare, tile.values_by_columns);
  if (part.want_queries) p.ops.pack_depth(keys, tile.keys_by_depth);
  if (part.want_keys) {
    std::fill_n(tile.d_keys, tile.rows * p.padded, 0.0F);
    std::fill_n(tile.d_values, tile.rows * p.value_padded, 0.0F);
  }
}

// [query rows, keys]: a row of a query-side matrix times each row of a key-side matrix.
void multiply_by_keys(const Problem& p, bool values, const uint32_t* rows_of,
                      const uint32_t* columns, int64_t rows, int64_t keys, bool diagonal,
                      float* out) {
  TileProduct product;
  product.c = out;
  product.ldc = kTile;
  product.a = rows_of;
  product.a_row = values ? p.value_row_words : p.row_words;
  product.a_depth = 1;
  product.b = columns;
  product.ldb = kTile;
  product.rows = rows;
  product.cols = round_up(keys, 16);
  product.depth = values ? p.value_depth_words : p.depth_words;
  product.skip = diagonal ? Skip::columns_after_row : Skip::nothing;
  p.ops.multiply(product);
}

// out [keys, D] += weights [query rows, keys]^T * queries [query rows, D], or of values' width.
void add_to_keys(const Problem& p, int64_t padded, const uint32_t* weights, const uint32_t* queries,
                 int64_t rows, int64_t keys, bool diagonal, float* out) {
  TileProduct product;
  product.c = out;
  product.ldc = padded;
  product.a = weights;
  product.a_row = 1;
  product.a_depth = kTile;
  product.b = queries;
  product.ldb = padded;
  product.rows = keys;
  product.cols = padded;
  product.depth = (rows + p.ops.elements_per_word - 1) / p.ops.elements_per_word;
  product.accumulate = true;
  product.skip = diagonal ? Skip::depth_before_row : Skip::nothing;
  p.ops.multiply(product);
}

// d_q [query rows, D] += ds [query rows, keys] * keys [keys, D].
void add_to_queries(const Problem& p, const Scratch& s, const KeyTile& tile, int64_t rows,
                    bool diagonal, float* d_q) {
  TileProduct product;
  product.c = d_q;
  product.ldc = p.padded;
  product.a = s.ds_by_rows;
  product.a_row = kTile / p.ops.elements_per_word;
  product.a_depth = 1;
  product.b = tile.keys_by_depth;
  product.ldb = p.padded;
  product.rows = rows;
  product.cols = p.padded;
  product.depth = (tile.rows + p.ops.elements_per_word - 1) / p.ops.elements_per_word;
  product.accumulate = true;
  product.skip = diagonal ? Skip::depth_after_row : Skip::nothing;
  p.ops.multiply(product);
}

void run_part(const Problem& p, const Part& part, Scratch& s) {
  const int64_t query_tiles = part.query_end - part.query_begin;
  const int64_t tile_size = kTile * p.padded;
  const auto d_q_tile = [&](int64_t member, int64_t i) {
    return s.d_q + (member * query_tiles + i - part.query_begin) * tile_size;
  };
  if (part.want_queries) std::fill_n(s.d_q, p.group * query_tiles * tile_size, 0.0F);

  // Without dK and dV to write, keys that no query attends to can be skipped.
  const int64_t key_begin =
      part.want_keys ? part.key_begin
                     : std::max(part.key_begin, first_key_tile(p, part.sequence, part.query_begin));
  for (int64_t first = key_begin; first < part.key_end; first += kKeyTiles) {
    const int64_t last = std::min(part.key_end, first + kKeyTiles);
    for (int64_t j = first; j < last; ++j) {
      load_keys(p, part, j, s.spare, s.key_tiles[j - first]);
    }
    for (int64_t member = 0; member < p.group; ++member) {
      const int64_t head = part.kv_head * p.group + member;
      const int64_t lowest = p.args.causal ? first : 0;  // first query tile with these keys
      for (int64_t i = std::max(lowest, part.query_begin); i < part.query_end; ++i) {
        const int64_t seen_begin = first_key_tile(p, part.sequence, i);
        if (seen_begin >= last) break;
        const TileSource q = query_tile(p, p.args.q, part.sequence, i, head, p.args.head_dim);
        const TileSource d_out =
            query_tile(p, p.args.d_out, part.sequence, i, head, p.args.value_dim);
        p.ops.pack_rows(q, s.q);
        p.ops.pack_rows(d_out, s.d_out);
        if (part.want_keys) {
          p.ops.pack_depth(q, s.q_by_depth);
          p.ops.pack_depth(d_out, s.d_out_by_depth);
        }
        const int64_t row =
            (part.sequence * p.args.heads + head) * p.args.rows + p.query_first + i * kTile;
        float log2_lse[kTile];
        for (int64_t r = 0; r < q.rows; ++r) {
          log2_lse[r] = static_cast<float>(kLog2E * p.args.lse.as<float>()[row + r]);
        }
        const int64_t seen_end = p.args.causal ? std::min(last, i + 1) : last;
        for (int64_t j = std::max(first, seen_begin); j < seen_end; ++j) {
          const KeyTile& tile = s.key_tiles[j - first];
          const bool diagonal = p.args.causal && i == j;
          multiply_by_keys(p, false, s.q, tile.keys_by_columns, q.rows, tile.rows, diagonal,
                           s.scores);
          multiply_by_keys(p, true, s.d_out, tile.values_by_columns, q.rows, tile.rows, diagonal,
                           s.dp);
          const float cap_slope = p.args.softcap > 0 ? p.args.scale / p.args.softcap : 0;
          if (cap_slope > 0) p.ops.cap(s.scores, q.rows, cap_slope);
          GradientTile gradient;
          gradient.cap_slope = cap_slope;
          gradient.mask = {q.rows, tile.rows, diagonal ? 1 : kTile, starts_of(p, part.sequence, i),
                           j * kTile};
          gradient.scores = s.scores;
          gradient.dp = s.dp;
          gradient.log2_scale = static_cast<float>(static_cast<double>(p.args.scale) * kLog2E);
          gradient.log2_lse = log2_lse;
          gradient.delta = p.args.delta.as<float>() + row;
          gradient.p_by_columns = s.p_by_columns;
          gradient.ds_by_columns = s.ds_by_columns;
          gradient.ds_by_rows = s.ds_by_rows;
          p.ops.gradient(gradient);
          if (part.want_keys) {
            add_to_keys(p, p.value_padded, s.p_by_columns, s.d_out_by_depth, q.rows, tile.rows,
                        diagonal, tile.d_values);
            add_to_keys(p, p.padded, s.ds_by_columns, s.q_by_depth, q.rows, tile.rows, diagonal,
                        tile.d_keys);
          }
          if (part.want_queries) {
            add_to_queries(p, s, tile, q.rows, diagonal, d_q_tile(member, i));
          }
        }
      }
    }
    if (!part.want_keys) continue;
    for (int64_t j = first; j < last; ++j) {
      const KeyTile& tile = s.key_tiles[j - first];
      const AttendBackward& args = p.args;
      store_tile(tile.d_keys, p.padded, args.scale,
                 key_tile(p, args.d_keys, part.sequence, j, part.kv_head, args.head_dim),
                 args.d_keys.dtype, args.add_keys);
      store_tile(tile.d_values, p.value_padded, 1,
                 key_tile(p, args.d_values, part.sequence, j, part.kv_head, args.value_dim),
                 args.d_values.dtype, args.add_keys);
    }
  }
  if (!part.want_queries) return;
  for (int64_t member = 0; member < p.group; ++member) {
    for (int64_t i = part.query_begin; i < part.query_end; ++i) {
      store_tile(d_q_tile(member, i), p.padded, p.args.scale,
                 query_tile(p, p.args.d_q, part.sequence, i, part.kv_head * p.group + member,
                            p.args.head_dim),
                 p.args.d_q.dtype, p.args.add_queries);
    }
  }
}

void compute_delta(const Problem& p) {
  const AttendBackward& args = p.args;
  if (!args.out) return;
  parallel_tasks(args.batch * args.heads, [&](int64_t index, int) {
    const int64_t sequence = index / args.heads;
    const int64_t head = index % args.heads;
    float* delta = args.delta.as<float>() + index * args.rows;
    for (int64_t first = 0; first < args.rows; first += kTile) {
      const int64_t rows = std::min(kTile, args.rows - first);
      const int64_t row = sequence * args.rows + first;
      p.ops.row_dots(head_rows(args.d_out, row, rows, head, args.value_dim),
                     head_rows(args.out, row, rows, head, args.value_dim), delta + first);
    }
  });
}

// Task `index` of one kind.
template <typename MakePart>
void run_parts(const Problem& p, CpuStream& stream, int64_t count, int64_t query_tiles,
               const MakePart& make_part) {
  Carver measure(nullptr);
  carve(measure, p, query_tiles);
  char* scratch = static_cast<char*>(stream.scratch(measure.bytes() * thread_count()));
  parallel_tasks(count, [&](int64_t index, int thread) {
    Carver carver(scratch + measure.bytes() * thread);
    Scratch s = carve(carver, p, query_tiles);
    const int64_t kv = index % (p.args.batch * p.args.kv_heads);
    Part part = make_part(index / (p.args.batch * p.args.kv_heads));
    part.sequence = kv / p.args.kv_heads;
    part.kv_head = kv % p.args.kv_heads;
    run_part(p, part, s);
  });
}

void run(const Problem& p, CpuStream& stream) {
  compute_delta(p);
  const int64_t queries = p.query_blocks;
  const int64_t keys = p.key_blocks;
  const int64_t pairs = p.args.batch * p.args.kv_heads;
  const int64_t threads = thread_count();
  // Five products on the threads that complete key heads keep busy, or seven on all threads.
  const int64_t rounds = (pairs + threads - 1) / threads;
  const bool enough_tasks = 7 * pairs >= 5 * rounds * threads;
  const bool small = p.group * queries * kTile * p.padded * static_cast<int64_t>(sizeof(float)) <=
                     kMaxQueryGradientBytes;
  if (enough_tasks && small) {
    run_parts(p, stream, pairs, queries,
              [&](int64_t) { return Part{0, 0, 0, keys, 0, queries, true, true}; });
    return;
  }
  // Largest tasks first: the first keys have the most queries, the last queries the most keys.
  run_parts(p, stream, pairs * keys, 0,
            [&](int64_t j) { return Part{0, 0, j, j + 1, 0, queries, true, false}; });
  run_parts(p, stream, pairs * queries, 1, [&](int64_t index) {
    const int64_t i = queries - 1 - index;
    return Part{0, 0, 0, p.args.causal ? i + 1 : keys, i, i + 1, false, true};
  });
}

// Zeroes the gradients of rows outside every pair.
void zero_rest(const AttendBackward& args) {
  const auto zero = [&](const Matrix& matrix, int64_t first, int64_t end) {
    for (int64_t row = 0; row < args.batch * args.rows; ++row) {
      if (row % args.rows < first || row % args.rows >= end) continue;
      char* data = static_cast<char*>(matrix.data) + row * matrix.ld * dtype_bytes(matrix.dtype);
      std::memset(data, 0, static_cast<size_t>(matrix.cols * dtype_bytes(matrix.dtype)));
    }
  };
  if (args.causal) return;
  if (!args.add_queries) zero(args.d_q, 0, args.first_query);
  if (args.add_keys) return;
  zero(args.d_keys, args.key_count, args.rows);
  zero(args.d_values, args.key_count, args.rows);
}

}  // namespace

void attend_backward(CpuStream& stream, const AttendBackward& args) {
  Problem p{args, tile_ops(args.q.dtype)};
  p.group = args.heads / args.kv_heads;
  p.query_first = args.causal ? 0 : args.first_query;
  p.query_end = args.rows;
  p.key_end = args.causal ? args.rows : args.key_count;
  p.query_blocks = (p.query_end - p.query_first + kTile - 1) / kTile;
  p.key_blocks = (p.key_end + kTile - 1) / kTile;
  p.padded = padded_columns(args.head_dim);
  p.depth_words = (args.head_dim + p.ops.elements_per_word - 1) / p.ops.elements_per_word;
  p.row_words = p.padded / p.ops.elements_per_word;
  p.value_padded = padded_columns(args.value_dim);
  p.value_depth_words = (args.value_dim + p.ops.elements_per_word - 1) / p.ops.elements_per_word;
  p.value_row_words = p.value_padded / p.ops.elements_per_word;
  zero_rest(args);
  run(p, stream);
}

}  // namespace tutti::engine
