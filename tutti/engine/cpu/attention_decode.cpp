// Attention of new tokens against the KV cache: the forward loop with past > 0. A row's keys are in
// the same tiles as in the forward pass, so the results are bitwise equal.
#include "tutti/engine/cpu/attention.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {

void cpu_attention_decode(Stream& stream, const AttentionDecodeArgs& args) {
  const double begin = begin_op(stream);
  if (args.batch * args.queries * args.heads * args.head_dim == 0) return;
  const OpRecord what = describe(args);
  attend(cpu_stream(stream), attend_of(args));
  record(stream, what, begin);
}

}  // namespace tutti::engine
