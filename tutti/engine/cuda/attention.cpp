#include "tutti/engine/cuda/attention.h"

#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/record.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

template <typename Args>
OpRecord describe_seen(CudaStream& stream, const Args& args, double flops_per_pair) {
  OpRecord what = describe(args);
  const std::vector<int32_t> starts = read_starts(stream, args.starts);
  if (starts.empty()) return what;
  what.flops = flops_per_pair * static_cast<double>(args.heads * args.head_dim) *
               twice_pairs(starts.data(), args.batch, args.sequence) / 2;
  return what;
}

}  // namespace

void cuda_attention_forward(Stream& stream, const AttentionForwardArgs& args) {
  CudaStream& cuda = cuda_stream(stream);
  TUTTI_CHECK(args.softcap == 0 && value_width(args) == args.head_dim,
              "attention: softcap and values of another width are not supported on cuda");
  const OpRecord what = describe_seen(cuda, args, 4);
  if (args.batch * args.sequence * args.heads * args.head_dim == 0) return;
  const double begin = begin_op(cuda);
  if (!cuda.attention().forward(args)) attention_plain_forward(cuda, args);
  record(cuda, what, begin);
}

void cuda_attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  CudaStream& cuda = cuda_stream(stream);
  TUTTI_CHECK(args.softcap == 0 && value_width(args) == args.head_dim,
              "attention: softcap and values of another width are not supported on cuda");
  const OpRecord what = describe_seen(cuda, args, 10);
  if (args.batch * args.sequence * args.heads * args.head_dim == 0) return;
  const double begin = begin_op(cuda);
  if (!cuda.attention().backward(args)) attention_plain_backward(cuda, args);
  record(cuda, what, begin);
}

}  // namespace tutti::engine
