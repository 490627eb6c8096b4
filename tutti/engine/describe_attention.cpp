#include <algorithm>
#include <array>
#include <cmath>

#include "tutti/base/check.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

void check_heads(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  TUTTI_CHECK(kv_heads > 0 && heads % kv_heads == 0,
              "attention: {} heads are not a multiple of {} key/value heads", heads, kv_heads);
  TUTTI_CHECK(head_dim > 0, "attention: head size {}", head_dim);
}

void check_matrix(const char* name, const Matrix& matrix, int64_t rows, int64_t cols, DType dtype) {
  TUTTI_CHECK(matrix.rows == rows && matrix.cols == cols && matrix.dtype == dtype,
              "attention: {} is {} [{}, {}], expected {} [{}, {}]", name, dtype_name(matrix.dtype),
              matrix.rows, matrix.cols, dtype_name(dtype), rows, cols);
}

void check_starts(const Vector& starts, int64_t rows) {
  TUTTI_CHECK(!starts || starts.count == rows, "attention: {} starts for {} rows", starts.count,
              rows);
}

// A * (twice the pairs) of complete causal sequences.
template <typename Args>
double causal_work(const Args& args) {
  return real(args.heads) * real(args.batch * args.sequence) * real(args.sequence);
}

template <typename Args>
void check_block(const Args& args) {
  const int64_t n = args.batch * args.rows;
  check_heads(args.heads, args.kv_heads, args.head_dim);
  check_matrix("q", args.q, n, args.heads * args.head_dim, args.q.dtype);
  check_matrix("keys", args.keys, n, args.kv_heads * args.head_dim, args.q.dtype);
  check_matrix("values", args.values, n, args.kv_heads * args.head_dim, args.q.dtype);
  TUTTI_CHECK(args.lse.count == n * args.heads, "attention: lse has {} elements, expected {}",
              args.lse.count, n * args.heads);
  check_starts(args.starts, n);
}

// Half the pairs of all queries and keys, times A * D.
template <typename Args>
double block_work(const Args& args) {
  return real(args.batch * args.heads * args.head_dim) * real(args.rows) * real(args.rows) / 2;
}

}  // namespace

OpRecord describe(const AttentionForwardArgs& args) {
  const int64_t b = args.batch, t = args.sequence, a = args.heads, k = args.kv_heads;
  const int64_t d = args.head_dim, e = value_width(args);
  check_heads(a, k, d);
  check_matrix("qkv", args.qkv, b * t, (a + k) * d + k * e, args.qkv.dtype);
  check_matrix("out", args.out, b * t, a * e, args.qkv.dtype);
  TUTTI_CHECK(!args.lse || args.lse.count == b * a * t,
              "attention: lse has {} elements, expected {}", args.lse.count, b * a * t);
  check_starts(args.starts, b * t);
  return {
      .op = "attention_forward",
      .dims = {b, t, a, k, d},
      .flops = real(d + e) * causal_work(args),
      .bytes = real(args.qkv.bytes() + args.out.bytes() + args.lse.bytes() + args.starts.bytes())};
}

OpRecord describe(const AttentionBackwardArgs& args) {
  const int64_t b = args.batch, t = args.sequence, a = args.heads, k = args.kv_heads;
  const int64_t d = args.head_dim, e = value_width(args);
  check_heads(a, k, d);
  const DType dtype = args.qkv.dtype;
  check_matrix("qkv", args.qkv, b * t, (a + k) * d + k * e, dtype);
  check_matrix("d_qkv", args.d_qkv, b * t, (a + k) * d + k * e, dtype);
  check_matrix("out", args.out, b * t, a * e, dtype);
  check_matrix("d_out", args.d_out, b * t, a * e, dtype);
  TUTTI_CHECK(args.lse.count == b * a * t && args.delta.count == b * a * t,
              "attention: lse and delta have {} and {} elements, expected {}", args.lse.count,
              args.delta.count, b * a * t);
  check_starts(args.starts, b * t);
  return {
      .op = "attention_backward",
      .dims = {b, t, a, k, d},
      .flops = real(3 * d + 2 * e) * causal_work(args),
      .bytes = real(args.qkv.bytes() + args.out.bytes() + args.d_out.bytes() + args.d_qkv.bytes() +
                    args.lse.bytes() + args.delta.bytes() + args.starts.bytes())};
}

OpRecord describe(const AttentionBlockForwardArgs& args) {
  check_block(args);
  check_matrix("total", args.total, args.q.rows, args.q.cols, DType::f32);
  const bool own = seen_block(args.rows, args.blocks, args.query_block, args.key_block).own;
  TUTTI_CHECK(args.first == own, "attention: the first block of keys must be the rank's own");
  const int64_t sides = args.first ? 1 : 2;
  return {
      .op = "attention_block_forward",
      .dims = {args.batch, args.rows, args.heads, args.kv_heads, args.head_dim, args.first ? 1 : 0},
      .flops = 4 * block_work(args),
      .bytes =
          real(args.q.bytes() + args.keys.bytes() + args.values.bytes() + args.starts.bytes()) +
          real(sides * (args.total.bytes() + args.lse.bytes()))};
}

OpRecord describe(const AttentionBlockBackwardArgs& args) {
  check_block(args);
  const bool own = seen_block(args.rows, args.blocks, args.query_block, args.key_block).own;
  check_matrix("d_out", args.d_out, args.q.rows, args.q.cols, args.q.dtype);
  if (own) check_matrix("out", args.out, args.q.rows, args.q.cols, args.q.dtype);
  check_matrix("d_q", args.d_q, args.q.rows, args.q.cols, DType::f32);
  check_matrix("d_keys", args.d_keys, args.keys.rows, args.keys.cols, DType::f32);
  check_matrix("d_values", args.d_values, args.keys.rows, args.keys.cols, DType::f32);
  TUTTI_CHECK(args.delta.count == args.lse.count, "attention: delta has {} elements, expected {}",
              args.delta.count, args.lse.count);
  const int64_t queries = (args.add_queries ? 2 : 1) * args.d_q.bytes();
  const int64_t keys = (args.add_keys ? 2 : 1) * (args.d_keys.bytes() + args.d_values.bytes());
  return {
      .op = "attention_block_backward",
      .dims = {args.batch, args.rows, args.heads, args.kv_heads, args.head_dim, own ? 1 : 0},
      .flops = 10 * block_work(args),
      .bytes = real(args.q.bytes() + args.keys.bytes() + args.values.bytes() + args.d_out.bytes()) +
               real(args.starts.bytes()) +
               real((own ? args.out.bytes() : 0) + args.lse.bytes() + args.delta.bytes()) +
               real(queries + keys)};
}

namespace {

// The cache: rows of each sequence, or pages that it may name.
void check_cache(const AttentionDecodeArgs& args) {
  const int64_t b = args.batch;
  int64_t rows = b * args.capacity;
  if (args.pages) {
    TUTTI_CHECK(args.page_rows > 0 && args.capacity % args.page_rows == 0 &&
                    args.pages.count == b * (args.capacity / args.page_rows),
                "attention_decode: {} pages of {} rows for {} sequences of {}", args.pages.count,
                args.page_rows, b, args.capacity);
    rows = args.keys.rows;
  }
  check_matrix("keys", args.keys, rows, args.kv_heads * args.head_dim, args.q.dtype);
  check_matrix("values", args.values, rows, args.kv_heads * value_width(args), args.q.dtype);
  TUTTI_CHECK(!args.pasts || args.pasts.count == b, "attention_decode: {} pasts of {} sequences",
              args.pasts.count, b);
}

}  // namespace

OpRecord describe(const AttentionDecodeArgs& args) {
  const int64_t b = args.batch, n = args.queries, a = args.heads, k = args.kv_heads;
  const int64_t d = args.head_dim, e = value_width(args);
  const int64_t visible = args.past + n;
  check_heads(a, k, d);
  TUTTI_CHECK(args.past >= 0 && visible <= args.capacity,
              "attention_decode: {} past and {} new rows in a cache of {}", args.past, n,
              args.capacity);
  check_cache(args);
  check_matrix("q", args.q, b * n, a * d, args.q.dtype);
  check_matrix("out", args.out, b * n, a * e, args.q.dtype);
  check_starts(args.starts, b * n);
  TUTTI_CHECK(!args.lse || args.lse.count == b * a * n,
              "attention_decode: lse has {} elements, expected {}", args.lse.count, b * a * n);
  int64_t all = b * visible;  // rows of the cache that are read
  if (args.pasts) {
    all = b * n;
    for (int64_t i = 0; i < b; ++i) all += args.pasts.as<int32_t>()[i];
  }
  return {.op = "attention_decode",
          .dims = {b, n, args.past, a, k, d},
          .flops = 2 * real(a * n) * real(all * (d + e)),
          .bytes = real(args.q.bytes() + args.out.bytes() + args.lse.bytes()) +
                   real(all * k * (d + e) * dtype_bytes(args.q.dtype))};
}

OpRecord describe(const AttentionSinkForwardArgs& args) {
  const int64_t n = args.batch * args.rows, a = args.heads, d = args.head_dim;
  check_matrix("out", args.out, n, a * d, args.out.dtype);
  TUTTI_CHECK(
      args.sinks.count == a && args.sinks.dtype == args.out.dtype && args.lse.count == n * a,
      "attention_sink_forward: {} {} sinks, {} of lse for {} rows of {} heads", args.sinks.count,
      dtype_name(args.sinks.dtype), args.lse.count, n, a);
  return {.op = "attention_sink_forward",
          .dims = {n, a, d},
          .bytes = real(2 * args.out.bytes() + 2 * args.lse.bytes() + args.sinks.bytes())};
}

OpRecord describe(const AttentionSinkBackwardArgs& args) {
  const int64_t n = args.batch * args.rows, a = args.heads;
  TUTTI_CHECK(args.sinks.count == a && args.d_sinks.count == a && args.lse.count == n * a &&
                  args.delta.count == n * a && (args.beta == 0 || args.beta == 1),
              "attention_sink_backward: {} sinks, {} gradients, {} of lse, {} of delta for {} rows "
              "of {} heads, beta {}",
              args.sinks.count, args.d_sinks.count, args.lse.count, args.delta.count, n, a,
              args.beta);
  return {.op = "attention_sink_backward",
          .dims = {n, a},
          .bytes = real(args.sinks.bytes() + args.lse.bytes() + args.delta.bytes() +
                        (args.beta == 0 ? 1 : 2) * args.d_sinks.bytes())};
}

namespace {

// The operands that latent_heads reads and writes, or the gradients of them.
OpRecord describe_latent(const char* op, const std::array<int64_t, 4>& sizes, const Matrix& up,
                         const Matrix& shared, const Matrix& keys, const Matrix& values) {
  const auto [heads, shared_dim, head_dim, value_dim] = sizes;
  const int64_t n = up.rows;
  TUTTI_CHECK(heads > 0 && shared_dim >= 0 && head_dim >= 0 && value_dim > 0,
              "{}: {} heads of {} + {} and {} columns", op, heads, shared_dim, head_dim, value_dim);
  check_matrix("up", up, n, heads * (head_dim + value_dim), up.dtype);
  check_matrix("shared", shared, n, shared_dim, up.dtype);
  check_matrix("keys", keys, n, heads * (shared_dim + head_dim), up.dtype);
  check_matrix("values", values, n, heads * value_dim, up.dtype);
  return {.op = op,
          .dims = {n, heads, shared_dim, head_dim, value_dim},
          .bytes = real(up.bytes() + shared.bytes() + keys.bytes() + values.bytes())};
}

}  // namespace

OpRecord describe(const LatentHeadsArgs& args) {
  return describe_latent("latent_heads",
                         {args.heads, args.shared_dim, args.head_dim, args.value_dim}, args.up,
                         args.shared, args.keys, args.values);
}

OpRecord describe(const LatentHeadsBackwardArgs& args) {
  return describe_latent("latent_heads_backward",
                         {args.heads, args.shared_dim, args.head_dim, args.value_dim}, args.d_up,
                         args.d_shared, args.d_keys, args.d_values);
}

double twice_pairs(const int32_t* starts, int64_t batch, int64_t sequence) {
  int64_t sum = 0;
  for (int64_t row = 0; row < batch * sequence; ++row) {
    const int64_t t = row % sequence;
    TUTTI_CHECK(starts[row] >= (t == 0 ? 0 : starts[row - 1]) && starts[row] <= t,
                "attention: row {} of a sequence starts at {}, the row before it at {}", t,
                starts[row], t == 0 ? 0 : starts[row - 1]);
    sum += 2 * (t - starts[row]) + 1;
  }
  return real(sum);
}

double block_pairs(const int32_t* starts, int64_t batch, int64_t rows, const SeenBlock& seen) {
  int64_t twice = 0;  // the diagonal counts half
  for (int64_t row = 0; row < batch * rows; ++row) {
    const int64_t t = row % rows;
    TUTTI_CHECK(starts[row] >= (t == 0 ? 0 : starts[row - 1]) && (!seen.own || starts[row] <= t),
                "attention: row {} of a sequence starts at {}, the row before it at {}", t,
                starts[row], t == 0 ? 0 : starts[row - 1]);
    if (seen.own) {
      twice += 2 * (t - starts[row]) + 1;
    } else if (t >= seen.first_query) {
      twice += 2 * std::max<int64_t>(0, seen.key_count - starts[row]);
    }
  }
  return real(twice) / 2;
}

float attention_scale(float scale, int64_t head_dim) {
  TUTTI_CHECK(scale >= 0, "attention: scale {} is negative", scale);
  return scale > 0 ? scale : static_cast<float>(1.0 / std::sqrt(real(head_dim)));
}

SeenBlock seen_block(int64_t rows, int64_t blocks, int64_t query_block, int64_t key_block) {
  TUTTI_CHECK(blocks > 0 && query_block >= 0 && query_block < blocks && key_block >= 0 &&
                  key_block < blocks,
              "attention: block {} of queries, {} of keys, of {}", query_block, key_block, blocks);
  if (key_block == query_block) return {true, 0, rows};
  TUTTI_CHECK(rows % 2 == 0, "attention: {} rows do not divide into two chunks", rows);
  if (key_block < query_block) return {false, 0, rows / 2};
  return {false, rows / 2, rows};
}

}  // namespace tutti::engine
