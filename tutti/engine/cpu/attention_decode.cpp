// Attention of new tokens against a cache of keys and values: the forward loop with a past. Keys
// meet a row in the same tiles as in forward, so the results are the same bits.
#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/engine/cpu/attention.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"

namespace tutti::engine {

void cpu_attention_decode(Stream& stream, const AttentionDecodeArgs& args) {
  const double begin = begin_op(stream);
  const int64_t b = args.batch, n = args.queries, a = args.heads, k = args.kv_heads;
  const int64_t d = args.head_dim;
  const int64_t visible = args.past + n;
  if (b * n * a * d == 0) return;
  check_attention_heads(a, k, d);
  TUTTI_CHECK(args.past >= 0 && visible <= args.capacity,
              "attention_decode: {} past and {} new rows in a cache of {}", args.past, n,
              args.capacity);
  check_attention_matrix("q", args.q, b * n, a * d, args.q.dtype);
  check_attention_matrix("keys", args.keys, b * args.capacity, k * d, args.q.dtype);
  check_attention_matrix("values", args.values, b * args.capacity, k * d, args.q.dtype);
  check_attention_matrix("out", args.out, b * n, a * d, args.q.dtype);
  Attend work;
  work.batch = b;
  work.queries = n;
  work.past = args.past;
  work.key_capacity = args.capacity;
  work.heads = a;
  work.kv_heads = k;
  work.head_dim = d;
  work.scale = attention_scale(args.scale, d);
  work.q = args.q;
  work.keys = args.keys;
  work.values = args.values;
  work.out = args.out;
  attend(cpu_stream(stream), work);
  const double cache_bytes =
      2.0 * static_cast<double>(b * visible * k * d * dtype_bytes(args.q.dtype));
  record(stream, "attention_decode", {b, n, args.past, a, k, d},
         4.0 * static_cast<double>(b * a * n) * static_cast<double>(visible * d),
         static_cast<double>(args.q.bytes() + args.out.bytes()) + cache_bytes, begin);
}

}  // namespace tutti::engine
