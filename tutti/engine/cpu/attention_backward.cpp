// Causal attention backward (attention_ops.h states the contract): the loops of attend_backward.cpp
// over one matrix of queries, keys and values.
#include "tutti/base/check.h"
#include "tutti/engine/cpu/attention.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {

void cpu_attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  const double begin = begin_op(stream);
  const int64_t b = args.batch, t = args.sequence;
  if (b * t * args.heads * args.head_dim == 0) return;
  OpRecord what = describe(args);
  if (args.starts) {
    const int64_t widths = args.heads * (3 * args.head_dim + 2 * value_width(args));
    what.flops = static_cast<double>(widths) * twice_pairs(args.starts.as<int32_t>(), b, t);
  }
  attend_backward(cpu_stream(stream), attend_of(args));
  record(stream, what, begin);
}

}  // namespace tutti::engine
