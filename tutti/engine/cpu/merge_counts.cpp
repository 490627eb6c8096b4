// moe_ops.h states the contract.
#include <algorithm>

#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"

namespace tutti::engine {

void cpu_merge_counts(Stream& stream, const MergeCountsArgs& args) {
  const int64_t sequences = args.totals.rows;
  const int64_t experts = args.totals.cols;
  const int64_t blocks = args.blocks;
  TUTTI_CHECK(blocks > 0 && args.block >= 0 && args.block < blocks &&
                  args.counts.rows == blocks * 2 * sequences && args.counts.cols == experts &&
                  args.before.rows == 2 * sequences && args.before.cols == experts,
              "merge_counts: [{}, {}] of {} blocks, totals [{}, {}], before [{}, {}]",
              args.counts.rows, args.counts.cols, blocks, sequences, experts, args.before.rows,
              args.before.cols);
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
  record(stream, "merge_counts", {sequences, experts, blocks}, 0,
         static_cast<double>(args.counts.bytes() + args.totals.bytes() + args.before.bytes()),
         begin);
}

}  // namespace tutti::engine
