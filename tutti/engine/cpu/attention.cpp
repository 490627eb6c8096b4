// Causal attention on the CPU, forward: FlashAttention (Dao et al. 2022) by tiles of kTile queries
// and kTile keys. A task takes a few query tiles that share key heads, loops over the keys once,
// and keeps the running maximum, sum and output of each query in its scratch memory.
#include "tutti/engine/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/base/check.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kQueryTilesPerTask = 4;  // they share the packed keys and values

// One tile of queries of one head, and its running softmax.
struct QueryTile {
  int64_t head = 0;
  int64_t first = 0;  // query of its first row
  int64_t rows = 0;
  uint32_t* q = nullptr;     // [kTile][padded D words]
  float* out = nullptr;      // [kTile][padded E]
  float* row_max = nullptr;  // [kTile]
  float* row_sum = nullptr;  // [kTile][kSumLanes]
};

struct Scratch {
  QueryTile tiles[kQueryTilesPerTask];
  uint32_t* keys = nullptr;    // [padded D words][kTile]
  uint32_t* spare = nullptr;   // [kTile][padded D words]
  uint32_t* values = nullptr;  // [kTile words][padded E]
  float* scores = nullptr;     // [kTile][kTile]
  uint32_t* p = nullptr;       // [kTile][kTile words]
  char* rows = nullptr;        // [kTile][D or E] elements: of a head, from pages apart
};

Scratch carve(Carver& carver, const Attend& args, int64_t tiles, int64_t elements_per_word) {
  const int64_t padded = padded_columns(args.value_dim);
  const int64_t words = padded_columns(args.head_dim) / elements_per_word;
  Scratch s;
  for (int64_t i = 0; i < tiles; ++i) {
    s.tiles[i].q = carver.take<uint32_t>(kTile * words);
    s.tiles[i].out = carver.take<float>(kTile * padded);
    s.tiles[i].row_max = carver.take<float>(kTile);
    s.tiles[i].row_sum = carver.take<float>(kTile * kSumLanes);
  }
  s.keys = carver.take<uint32_t>(words * kTile);
  s.spare = carver.take<uint32_t>(kTile * words);
  s.values = carver.take<uint32_t>(kTile / elements_per_word * padded);
  s.scores = carver.take<float>(kTile * kTile);
  s.p = elements_per_word == 1 ? reinterpret_cast<uint32_t*>(s.scores)
                               : carver.take<uint32_t>(kTile * kTile / elements_per_word);
  if (args.pages != nullptr) {
    s.rows = carver.take<char>(kTile * std::max(args.head_dim, args.value_dim) *
                               dtype_bytes(args.keys.dtype));
  }
  return s;
}

// Grouping of query tiles into tasks. It affects speed only.
struct Tasks {
  int64_t heads_per_task = 1, head_chunks = 1;  // of the A/K heads of one key head
  int64_t blocks_per_task = 1, block_chunks = 1;
  int64_t count = 0;
};

Tasks plan_tasks(const Attend& args) {
  const int64_t group = args.heads / args.kv_heads;
  const int64_t blocks = (args.queries + kTile - 1) / kTile;
  Tasks t;
  t.heads_per_task = std::min(group, kQueryTilesPerTask);
  t.head_chunks = (group + t.heads_per_task - 1) / t.heads_per_task;
  const int64_t chunks = args.batch * args.kv_heads * t.head_chunks;
  // Several query tiles per task, unless that leaves too few tasks to balance the threads.
  t.blocks_per_task = std::min(blocks, kQueryTilesPerTask / t.heads_per_task);
  const auto blocks_of = [&](int64_t per_task) { return (blocks + per_task - 1) / per_task; };
  while (t.blocks_per_task > 1 &&
         chunks * blocks_of(t.blocks_per_task) < 4 * int64_t{thread_count()}) {
    t.blocks_per_task /= 2;
  }
  t.block_chunks = blocks_of(t.blocks_per_task);
  t.count = chunks * t.block_chunks;
  return t;
}

void start(const Attend& args, const TileOps& ops, int64_t sequence, QueryTile& tile) {
  const int64_t padded = padded_columns(args.value_dim);
  ops.pack_rows(
      head_rows(args.q, args.query_row(sequence, tile.first), tile.rows, tile.head, args.head_dim),
      tile.q);
  std::fill_n(tile.row_sum, tile.rows * kSumLanes, 0.0F);
  if (!args.merge) {
    std::fill_n(tile.out, tile.rows * padded, 0.0F);
    std::fill_n(tile.row_max, tile.rows, -std::numeric_limits<float>::infinity());
    return;
  }
  // The result so far counts like one key with the value `out` and the score lse.
  for (int64_t r = 0; r < tile.rows; ++r) {
    const float* from =
        args.out.row<float>(args.query_row(sequence, tile.first + r)) + tile.head * args.value_dim;
    float* to = tile.out + r * padded;
    std::copy_n(from, args.value_dim, to);
    std::fill(to + args.value_dim, to + padded, 0.0F);
    tile.row_max[r] =
        args.lse.as<float>()[args.lse_index(sequence, tile.head, tile.first + r)] / args.scale;
    tile.row_sum[r * kSumLanes] = 1;
  }
}

// The starts of a tile's rows, or null.
const int32_t* starts_of(const Attend& args, int64_t sequence, const QueryTile& tile) {
  return args.starts == nullptr ? nullptr : args.starts + args.query_row(sequence, tile.first);
}

// Adds the packed keys and values [key, key + keys) to a tile.
void add_keys(const Attend& args, const TileOps& ops, const Scratch& s, const QueryTile& tile,
              int64_t sequence, int64_t key, int64_t keys) {
  const int64_t position = args.past_of(sequence) + tile.first;  // of the tile's first row
  const int32_t* starts = starts_of(args, sequence, tile);
  if (key >= position + tile.rows || (starts != nullptr && key + keys <= starts[0])) return;
  const bool diagonal = key == position;
  const int64_t padded = padded_columns(args.value_dim);
  const int64_t per_word = ops.elements_per_word;

  TileProduct scores;
  scores.c = s.scores;
  scores.ldc = kTile;
  scores.a = tile.q;
  scores.a_row = padded_columns(args.head_dim) / per_word;
  scores.a_depth = 1;
  scores.b = s.keys;
  scores.ldb = kTile;
  scores.rows = tile.rows;
  scores.cols = round_up(keys, 16);
  scores.depth = (args.head_dim + per_word - 1) / per_word;
  scores.skip = diagonal ? Skip::columns_after_row : Skip::nothing;
  ops.multiply(scores);
  if (args.softcap > 0) ops.cap(s.scores, tile.rows, args.scale / args.softcap);

  SoftmaxTile softmax;
  softmax.mask = {tile.rows, keys, position - key + 1, starts, key};
  softmax.scores = s.scores;
  softmax.log2_scale = static_cast<float>(static_cast<double>(args.scale) * kLog2E);
  softmax.row_max = tile.row_max;
  softmax.row_sum = tile.row_sum;
  softmax.out = tile.out;
  softmax.out_cols = padded;
  softmax.p = s.p;
  ops.softmax(softmax);

  TileProduct out;
  out.c = tile.out;
  out.ldc = padded;
  out.a = s.p;
  out.a_row = kTile / per_word;
  out.a_depth = 1;
  out.b = s.values;
  out.ldb = padded;
  out.rows = tile.rows;
  out.cols = padded;
  out.depth = (keys + per_word - 1) / per_word;
  out.accumulate = true;
  out.skip = diagonal ? Skip::depth_after_row : Skip::nothing;
  ops.multiply(out);
}

void finish(const Attend& args, int64_t sequence, const QueryTile& tile) {
  float factors[kTile];
  for (int64_t r = 0; r < tile.rows; ++r) {
    float sum = 0;
    for (int64_t i = 0; i < kSumLanes; ++i) sum += tile.row_sum[r * kSumLanes + i];
    factors[r] = 1.0F / sum;
    if (args.lse) {
      args.lse.as<float>()[args.lse_index(sequence, tile.head, tile.first + r)] =
          tile.row_max[r] * args.scale + std::log(sum);
    }
  }
  const TileSource to = head_rows(args.out, args.query_row(sequence, tile.first), tile.rows,
                                  tile.head, args.value_dim);
  tile_ops(args.out.dtype)
      .store(tile.out, padded_columns(args.value_dim), factors, tile.rows, args.value_dim,
             const_cast<void*>(to.data), args.out.ld);
}

// Prefetches rows that will be packed next. Rows of one head lie far apart, often each on its own
// page, where the hardware does not prefetch.
void prefetch(const TileSource& source, DType dtype) {
  const char* row = static_cast<const char*>(source.data);
  const int64_t bytes = source.cols * dtype_bytes(dtype);
  for (int64_t r = 0; r < source.rows; ++r, row += source.ld * dtype_bytes(dtype)) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
  }
}

// Keys [first, first + count) of a sequence.
struct KeyRange {
  int64_t sequence, first, count;
};

// Calls visit(row, done, count) for rows of the cache that follow each other, in order.
template <typename Visit>
void for_each_run(const Attend& args, const KeyRange& range, const Visit& visit) {
  for (int64_t done = 0; done < range.count;) {
    const int64_t row = args.key_row(range.sequence, range.first + done);
    int64_t count = range.count - done;
    if (args.pages != nullptr) {
      const int64_t page_rows = args.page_rows;
      int64_t run = page_rows - (range.first + done) % page_rows;
      while (run < count && args.key_row(range.sequence, range.first + done + run) == row + run) {
        run += page_rows;
      }
      count = std::min(count, run);
    }
    visit(row, done, count);
    done += count;
  }
}

// Columns of head `head` in keys or values.
struct HeadColumns {
  const Matrix& from;
  int64_t head, width;
};

// Keys or values of a head: where they lie, or gathered in `room`.
TileSource key_rows(const Attend& args, const HeadColumns& columns, const KeyRange& range,
                    char* room) {
  TileSource source = {room, columns.width, range.count, columns.width};
  const int64_t element_bytes = dtype_bytes(columns.from.dtype);
  const int64_t row_bytes = columns.width * element_bytes;
  for_each_run(args, range, [&](int64_t row, int64_t done, int64_t count) {
    const TileSource run = head_rows(columns.from, row, count, columns.head, columns.width);
    if (count == range.count) {
      source = run;
      return;
    }
    const char* data = static_cast<const char*>(run.data);
    for (int64_t r = 0; r < count; ++r) {
      std::memcpy(room + (done + r) * row_bytes, data + r * run.ld * element_bytes,
                  static_cast<size_t>(row_bytes));
    }
  });
  return source;
}

void run_task(const Attend& args, const TileOps& ops, const Tasks& tasks, Scratch& s,
              int64_t index) {
  const int64_t group = args.heads / args.kv_heads;
  // The last queries have the most keys: they come first, small tasks fill the gaps at the end.
  const int64_t chunks = args.batch * args.kv_heads * tasks.head_chunks;
  const int64_t block_chunk = tasks.block_chunks - 1 - index / chunks;
  const int64_t head_chunk = index % tasks.head_chunks;
  const int64_t kv_head = index / tasks.head_chunks % args.kv_heads;
  const int64_t sequence = index % chunks / tasks.head_chunks / args.kv_heads;

  int64_t tiles = 0;
  int64_t keys_begin = std::numeric_limits<int64_t>::max();
  int64_t keys_end = 0;
  for (int64_t h = 0; h < tasks.heads_per_task; ++h) {
    const int64_t member = head_chunk * tasks.heads_per_task + h;
    if (member >= group) break;
    for (int64_t b = 0; b < tasks.blocks_per_task; ++b) {
      const int64_t first = (block_chunk * tasks.blocks_per_task + b) * kTile;
      if (first >= args.queries) break;
      QueryTile& tile = s.tiles[tiles++];
      tile.head = kv_head * group + member;
      tile.first = first;
      tile.rows = std::min(kTile, args.queries - first);
      // Starts are non-decreasing, so the first row has the earliest.
      const int32_t* starts = starts_of(args, sequence, tile);
      keys_begin = std::min<int64_t>(keys_begin, starts == nullptr ? 0 : starts[0]);
      keys_end = std::max(
          keys_end, std::min(args.past_of(sequence) + first + tile.rows, args.keys_end(sequence)));
      start(args, ops, sequence, tile);
    }
  }
  for (int64_t key = keys_begin / kTile * kTile; key < keys_end; key += kTile) {
    const int64_t keys = std::min(kTile, keys_end - key);
    const KeyRange range = {sequence, key, keys};
    ops.pack_columns(key_rows(args, {args.keys, kv_head, args.head_dim}, range, s.rows), s.spare,
                     s.keys);
    ops.pack_depth(key_rows(args, {args.values, kv_head, args.value_dim}, range, s.rows), s.values);
    const int64_t ahead = std::min(kTile, keys_end - key - keys);
    for_each_run(args, {sequence, key + keys, ahead}, [&](int64_t row, int64_t, int64_t count) {
      prefetch(head_rows(args.keys, row, count, kv_head, args.head_dim), args.keys.dtype);
      prefetch(head_rows(args.values, row, count, kv_head, args.value_dim), args.values.dtype);
    });
    for (int64_t i = 0; i < tiles; ++i) add_keys(args, ops, s, s.tiles[i], sequence, key, keys);
  }
  for (int64_t i = 0; i < tiles; ++i) finish(args, sequence, s.tiles[i]);
}

}  // namespace

void attend(CpuStream& stream, const Attend& args) {
  if (args.batch == 0 || args.queries == 0 || args.heads == 0) return;
  const TileOps& ops = tile_ops(args.q.dtype);
  const Tasks tasks = plan_tasks(args);
  const int64_t tiles = tasks.heads_per_task * tasks.blocks_per_task;
  Carver measure(nullptr);
  carve(measure, args, tiles, ops.elements_per_word);
  char* scratch = static_cast<char*>(stream.scratch(measure.bytes() * thread_count()));
  parallel_tasks(tasks.count, [&](int64_t index, int thread) {
    Carver carver(scratch + measure.bytes() * thread);
    Scratch s = carve(carver, args, tiles, ops.elements_per_word);
    run_task(args, ops, tasks, s, index);
  });
}

void cpu_attention_forward(Stream& stream, const AttentionForwardArgs& args) {
  const double begin = begin_op(stream);
  const int64_t b = args.batch, t = args.sequence;
  if (b * t * args.heads * args.head_dim == 0) return;
  OpRecord what = describe(args);
  if (args.starts) {
    const int64_t widths = args.heads * (args.head_dim + value_width(args));
    what.flops = static_cast<double>(widths) * twice_pairs(args.starts.as<int32_t>(), b, t);
  }
  attend(cpu_stream(stream), attend_of(args));
  record(stream, what, begin);
}

}  // namespace tutti::engine
