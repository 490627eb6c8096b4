// Attention of one rank's queries to one rank's keys (attention_ops.h states the contract): the
// loops of attention.h over the half of the pairs that the causal mask leaves.
#include "tutti/engine/cpu/attention.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

// A * D * pairs within packed documents.
template <typename Args>
double work_left(const Args& args) {
  const SeenBlock seen = seen_block(args.rows, args.blocks, args.query_block, args.key_block);
  return static_cast<double>(args.heads * args.head_dim) *
         block_pairs(args.starts.template as<int32_t>(), args.batch, args.rows, seen);
}

}  // namespace

void cpu_attention_block_forward(Stream& stream, const AttentionBlockForwardArgs& args) {
  const double begin = begin_op(stream);
  if (args.batch * args.rows * args.heads * args.head_dim == 0) return;
  OpRecord what = describe(args);
  if (args.starts) what.flops = 4 * work_left(args);
  attend(cpu_stream(stream), attend_of(args));
  record(stream, what, begin);
}

void cpu_attention_block_backward(Stream& stream, const AttentionBlockBackwardArgs& args) {
  const double begin = begin_op(stream);
  if (args.batch * args.rows * args.heads * args.head_dim == 0) return;
  OpRecord what = describe(args);
  if (args.starts) what.flops = 10 * work_left(args);
  attend_backward(cpu_stream(stream), attend_of(args));
  record(stream, what, begin);
}

}  // namespace tutti::engine
