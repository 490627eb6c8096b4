// moe_ops.h states the contract.
#include <algorithm>

#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {

void cpu_merge_counts(Stream& stream, const MergeCountsArgs& args) {
  const int64_t sequences = args.totals.rows;
  const int64_t experts = args.totals.cols;
  const int64_t blocks = args.blocks;
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  for (int64_t b = 0; b < sequences; ++b) {
    int32_t* total = args.totals.row<int32_t>(b);
    std::fill_n(total, experts, 0);
    for (int64_t part = 0; part < 2 * blocks; ++part) {
      const bool late = part >= blocks;
      const int64_t block = late ? 2 * blocks - 1 - part : part;
      const int64_t half = late ? 1 : 0;
      if (block == args.block) {
        std::copy_n(total, experts, args.before.row<int32_t>(2 * b + half));
      }
      const int32_t* counts = args.counts.row<int32_t>((block * sequences + b) * 2 + half);
      for (int64_t e = 0; e < experts; ++e) total[e] += counts[e];
    }
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
