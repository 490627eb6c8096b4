// Attention of one rank's queries to one rank's keys (attention_ops.h states the contract): by
// cuDNN's kernels or the plain ones, over the half of the pairs that the causal mask leaves.
#include <vector>

#include "tutti/engine/cuda/attention.h"
#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

template <typename Args>
OpRecord describe_left(CudaStream& stream, const Args& args, double flops_per_pair) {
  OpRecord what = describe(args);
  TUTTI_CHECK(args.softcap == 0, "{}: softcap is not supported on cuda", what.op);
  const std::vector<int32_t> starts = read_starts(stream, args.starts);
  if (starts.empty()) return what;
  const SeenBlock seen = seen_block(args.rows, args.blocks, args.query_block, args.key_block);
  what.flops = flops_per_pair * static_cast<double>(args.heads * args.head_dim) *
               block_pairs(starts.data(), args.batch, args.rows, seen);
  return what;
}

}  // namespace

void cuda_attention_block_forward(Stream& stream, const AttentionBlockForwardArgs& args) {
  if (args.batch * args.rows * args.heads * args.head_dim == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  const OpRecord what = describe_left(cuda, args, 4);
  const double begin = begin_op(cuda);
  if (!cuda.attention().forward(args)) attend(cuda, what.op, attend_of(args));
  record(cuda, what, begin);
}

void cuda_attention_block_backward(Stream& stream, const AttentionBlockBackwardArgs& args) {
  if (args.batch * args.rows * args.heads * args.head_dim == 0) return;
  CudaStream& cuda = cuda_stream(stream);
  const OpRecord what = describe_left(cuda, args, 10);
  const double begin = begin_op(cuda);
  if (!cuda.attention().backward(args)) attend_backward(cuda, what.op, attend_of(args));
  record(cuda, what, begin);
}

}  // namespace tutti::engine
