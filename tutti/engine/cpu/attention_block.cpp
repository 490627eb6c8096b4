// Attention of one rank's queries on one rank's keys (ops.h states the contract): the loops of
// attention.h over the half of the pairs that causality leaves.
#include "tutti/base/check.h"
#include "tutti/engine/cpu/attention.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"

namespace tutti::engine {
namespace {

// Which queries see which keys, besides the own block, where row t sees rows 0 .. t.
struct Seen {
  bool own = false;
  int64_t first_query = 0;
  int64_t key_count = 0;
};

template <typename Args>
Seen seen_of(const Args& args) {
  TUTTI_CHECK(args.blocks > 0 && args.query_block >= 0 && args.query_block < args.blocks &&
                  args.key_block >= 0 && args.key_block < args.blocks,
              "attention: block {} of queries, {} of keys, of {}", args.query_block, args.key_block,
              args.blocks);
  if (args.key_block == args.query_block) return {true, 0, args.rows};
  TUTTI_CHECK(args.rows % 2 == 0, "attention: {} rows are not two chunks", args.rows);
  if (args.key_block < args.query_block) return {false, 0, args.rows / 2};
  return {false, args.rows / 2, args.rows};
}

template <typename Args>
void check_operands(const Args& args) {
  const int64_t n = args.batch * args.rows;
  check_attention_heads(args.heads, args.kv_heads, args.head_dim);
  check_attention_matrix("q", args.q, n, args.heads * args.head_dim, args.q.dtype);
  check_attention_matrix("keys", args.keys, n, args.kv_heads * args.head_dim, args.q.dtype);
  check_attention_matrix("values", args.values, n, args.kv_heads * args.head_dim, args.q.dtype);
  TUTTI_CHECK(args.lse.count == n * args.heads, "attention: lse has {} elements, not {}",
              args.lse.count, n * args.heads);
}

// Half the pairs of all queries and keys, times A * D.
template <typename Args>
double weighted_pairs(const Args& args) {
  return static_cast<double>(args.batch * args.heads * args.head_dim) *
         static_cast<double>(args.rows) * static_cast<double>(args.rows) / 2;
}

double real(int64_t value) { return static_cast<double>(value); }

}  // namespace

void cpu_attention_block_forward(Stream& stream, const AttentionBlockForwardArgs& args) {
  const double begin = begin_op(stream);
  if (args.batch * args.rows * args.heads * args.head_dim == 0) return;
  check_operands(args);
  check_attention_matrix("total", args.total, args.q.rows, args.q.cols, DType::f32);
  const Seen seen = seen_of(args);
  TUTTI_CHECK(args.first == seen.own, "attention: the first block of keys is not the rank's own");
  Attend work;
  work.batch = args.batch;
  work.queries = args.rows - seen.first_query;
  work.query_capacity = work.key_capacity = args.rows;
  work.first_query = seen.first_query;
  work.key_count = seen.key_count;
  work.past = seen.own ? 0 : seen.key_count;
  work.heads = args.heads;
  work.kv_heads = args.kv_heads;
  work.head_dim = args.head_dim;
  work.scale = attention_scale(args.scale, args.head_dim);
  work.q = args.q;
  work.keys = args.keys;
  work.values = args.values;
  work.out = args.total;
  work.lse = args.lse;
  work.merge = !args.first;
  attend(cpu_stream(stream), work);
  const int64_t sides = args.first ? 1 : 2;
  record(stream, "attention_block_forward",
         {args.batch, args.rows, args.heads, args.kv_heads, args.head_dim, args.first ? 1 : 0},
         4 * weighted_pairs(args),
         real(args.q.bytes() + args.keys.bytes() + args.values.bytes()) +
             real(sides * (args.total.bytes() + args.lse.bytes())),
         begin);
}

void cpu_attention_block_backward(Stream& stream, const AttentionBlockBackwardArgs& args) {
  const double begin = begin_op(stream);
  if (args.batch * args.rows * args.heads * args.head_dim == 0) return;
  check_operands(args);
  const Seen seen = seen_of(args);
  check_attention_matrix("d_out", args.d_out, args.q.rows, args.q.cols, args.q.dtype);
  if (seen.own) check_attention_matrix("out", args.out, args.q.rows, args.q.cols, args.q.dtype);
  check_attention_matrix("d_q", args.d_q, args.q.rows, args.q.cols, DType::f32);
  check_attention_matrix("d_keys", args.d_keys, args.keys.rows, args.keys.cols, DType::f32);
  check_attention_matrix("d_values", args.d_values, args.keys.rows, args.keys.cols, DType::f32);
  TUTTI_CHECK(args.delta.count == args.lse.count, "attention: delta has {} elements, not {}",
              args.delta.count, args.lse.count);
  AttendBackward work;
  work.batch = args.batch;
  work.rows = args.rows;
  work.heads = args.heads;
  work.kv_heads = args.kv_heads;
  work.head_dim = args.head_dim;
  work.scale = attention_scale(args.scale, args.head_dim);
  work.causal = seen.own;
  work.first_query = seen.first_query;
  work.key_count = seen.key_count;
  work.q = args.q;
  work.keys = args.keys;
  work.values = args.values;
  if (seen.own) work.out = args.out;
  work.d_out = args.d_out;
  work.lse = args.lse;
  work.delta = args.delta;
  work.add_queries = args.add_queries;
  work.add_keys = args.add_keys;
  work.d_q = args.d_q;
  work.d_keys = args.d_keys;
  work.d_values = args.d_values;
  attend_backward(cpu_stream(stream), work);
  const int64_t queries = (args.add_queries ? 2 : 1) * args.d_q.bytes();
  const int64_t keys = (args.add_keys ? 2 : 1) * (args.d_keys.bytes() + args.d_values.bytes());
  record(stream, "attention_block_backward",
         {args.batch, args.rows, args.heads, args.kv_heads, args.head_dim, seen.own ? 1 : 0},
         10 * weighted_pairs(args),
         real(args.q.bytes() + args.keys.bytes() + args.values.bytes() + args.d_out.bytes()) +
             real((seen.own ? args.out.bytes() : 0) + args.lse.bytes() + args.delta.bytes()) +
             real(queries + keys),
         begin);
}

}  // namespace tutti::engine
