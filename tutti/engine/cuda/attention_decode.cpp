// Attention of new tokens against the KV cache: the plain kernel with past > 0.
#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {

void cuda_attention_decode(Stream& stream, const AttentionDecodeArgs& args) {
  if (args.batch * args.queries * args.heads * args.head_dim == 0) return;
  const OpRecord what = describe(args);
  TUTTI_CHECK(args.softcap == 0 && !args.lse && value_width(args) == args.head_dim,
              "{}: softcap, lse and values of another width are not supported on cuda", what.op);
  TUTTI_CHECK(!args.pasts && !args.pages, "{}: pasts and pages are not supported on cuda", what.op);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  attend(cuda, what.op, attend_of(args));
  record(cuda, what, begin);
}

}  // namespace tutti::engine
