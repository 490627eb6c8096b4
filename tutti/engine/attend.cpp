#include "tutti/engine/attend.h"

#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

template <typename Work, typename Args>
void take_heads(const Args& args, Work& work) {
  work.batch = args.batch;
  work.heads = args.heads;
  work.kv_heads = args.kv_heads;
  work.head_dim = args.head_dim;
  work.value_dim = value_width(args);
  work.scale = attention_scale(args.scale, args.head_dim);
  work.softcap = args.softcap;
}
struct Columns {
  Matrix q, keys, values;
};
// Rows hold queries, keys and values side by side.
template <typename Args>
Columns columns_of(const Matrix& qkv, const Args& args) {
  const int64_t queries = args.heads * args.head_dim;
  const int64_t keys = args.kv_heads * args.head_dim;
  return {qkv.slice_cols(0, queries), qkv.slice_cols(queries, keys),
          qkv.slice_cols(queries + keys, args.kv_heads * value_width(args))};
}
template <typename Work, typename Args>
void take_qkv(const Args& args, Work& work) {
  take_heads(args, work);
  const Columns columns = columns_of(args.qkv, args);
  work.q = columns.q;
  work.keys = columns.keys;
  work.values = columns.values;
}

}  // namespace

Attend attend_of(const AttentionForwardArgs& args) {
  Attend work;
  take_qkv(args, work);
  work.queries = work.key_capacity = args.sequence;
  work.out = args.out;
  work.lse = args.lse;
  if (args.starts) work.starts = args.starts.as<int32_t>();
  return work;
}

Attend attend_of(const AttentionBlockForwardArgs& args) {
  const SeenBlock seen = seen_block(args.rows, args.blocks, args.query_block, args.key_block);
  Attend work;
  take_heads(args, work);
  work.queries = args.rows - seen.first_query;
  work.query_capacity = work.key_capacity = args.rows;
  work.first_query = seen.first_query;
  work.key_count = seen.key_count;
  work.past = seen.own ? 0 : seen.key_count;
  work.q = args.q;
  work.keys = args.keys;
  work.values = args.values;
  work.out = args.total;
  work.lse = args.lse;
  work.merge = !args.first;
  if (args.starts) work.starts = args.starts.as<int32_t>();
  return work;
}

Attend attend_of(const AttentionDecodeArgs& args) {
  Attend work;
  take_heads(args, work);
  work.queries = args.queries;
  work.past = args.past;
  work.key_capacity = args.capacity;
  work.q = args.q;
  work.keys = args.keys;
  work.values = args.values;
  work.out = args.out;
  work.lse = args.lse;
  if (args.starts) work.starts = args.starts.as<int32_t>();
  if (args.pasts) work.pasts = args.pasts.as<int32_t>();
  if (args.pages) {
    work.pages = args.pages.as<int32_t>();
    work.page_rows = args.page_rows;
    work.page_count = args.capacity / args.page_rows;
  }
  return work;
}

AttendBackward attend_of(const AttentionBackwardArgs& args) {
  AttendBackward work;
  take_qkv(args, work);
  work.rows = args.sequence;
  work.out = args.out;
  work.d_out = args.d_out;
  work.lse = args.lse;
  work.delta = args.delta;
  if (args.starts) work.starts = args.starts.as<int32_t>();
  const Columns gradients = columns_of(args.d_qkv, args);
  work.d_q = gradients.q;
  work.d_keys = gradients.keys;
  work.d_values = gradients.values;
  return work;
}

AttendBackward attend_of(const AttentionBlockBackwardArgs& args) {
  const SeenBlock seen = seen_block(args.rows, args.blocks, args.query_block, args.key_block);
  AttendBackward work;
  take_heads(args, work);
  work.rows = args.rows;
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
  if (args.starts) work.starts = args.starts.as<int32_t>();
  return work;
}

}  // namespace tutti::engine
