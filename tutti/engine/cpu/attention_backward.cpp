// Causal attention backward (ops.h states the contract): the loops of attend_backward.cpp over one
// matrix of queries, keys and values.
#include "tutti/base/check.h"
#include "tutti/engine/cpu/attention.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"

namespace tutti::engine {

void cpu_attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  const double begin = begin_op(stream);
  const int64_t b = args.batch, t = args.sequence, a = args.heads, k = args.kv_heads;
  const int64_t d = args.head_dim;
  if (b * t * a * d == 0) return;
  check_attention_heads(a, k, d);
  const DType dtype = args.qkv.dtype;
  check_attention_matrix("qkv", args.qkv, b * t, (a + 2 * k) * d, dtype);
  check_attention_matrix("d_qkv", args.d_qkv, b * t, (a + 2 * k) * d, dtype);
  check_attention_matrix("out", args.out, b * t, a * d, dtype);
  check_attention_matrix("d_out", args.d_out, b * t, a * d, dtype);
  TUTTI_CHECK(args.lse.count == b * a * t && args.delta.count == b * a * t,
              "attention: lse and delta have {} and {} elements, not {}", args.lse.count,
              args.delta.count, b * a * t);
  const double twice_pairs = check_attention_starts(args.starts, b, t);
  AttendBackward work;
  work.batch = b;
  work.rows = t;
  work.heads = a;
  work.kv_heads = k;
  work.head_dim = d;
  work.scale = attention_scale(args.scale, d);
  work.q = args.qkv.slice_cols(0, a * d);
  work.keys = args.qkv.slice_cols(a * d, k * d);
  work.values = args.qkv.slice_cols((a + k) * d, k * d);
  work.out = args.out;
  work.d_out = args.d_out;
  work.lse = args.lse;
  work.delta = args.delta;
  if (args.starts) work.starts = args.starts.as<int32_t>();
  work.d_q = args.d_qkv.slice_cols(0, a * d);
  work.d_keys = args.d_qkv.slice_cols(a * d, k * d);
  work.d_values = args.d_qkv.slice_cols((a + k) * d, k * d);
  attend_backward(cpu_stream(stream), work);
  const double bytes = static_cast<double>(args.qkv.bytes() + args.out.bytes()) +
                       static_cast<double>(args.d_out.bytes() + args.d_qkv.bytes()) +
                       static_cast<double>(args.lse.bytes() + args.delta.bytes()) +
                       static_cast<double>(args.starts.bytes());
  record(stream, "attention_backward", {b, t, a, k, d},
         5.0 * static_cast<double>(a * d) * twice_pairs, bytes, begin);
}

}  // namespace tutti::engine
