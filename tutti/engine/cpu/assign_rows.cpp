// A counting sort in two passes over the choices, sequence by sequence, with a prefix sum between
// them (moe_ops.h states the contract).
#include <algorithm>

#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {

void cpu_assign_rows(Stream& stream, const AssignRowsArgs& args) {
  const int64_t n = args.experts.rows;
  const int64_t k = args.experts.cols;
  const int64_t sequences = args.counts.rows;
  const int64_t experts = args.counts.cols;
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const int64_t capacity = args.capacity > 0 ? args.capacity : n * k;
  const auto capacity_left = [&](int64_t b, int64_t e) {
    if (!args.before || args.capacity == 0) return capacity;
    return std::max<int64_t>(0, capacity - args.before.row<int32_t>(b)[e]);
  };

  parallel_ranges(sequences, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t b = first; b < last; ++b) {
      int32_t* counts = args.counts.row<int32_t>(b);
      std::fill(counts, counts + experts, 0);
      for (int64_t t = b * args.sequence; t < (b + 1) * args.sequence; ++t) {
        const int32_t* chosen = args.experts.row<int32_t>(t);
        for (int64_t i = 0; i < k; ++i) {
          TUTTI_CHECK(chosen[i] >= 0 && chosen[i] < experts, "assign_rows: row {} chose expert {}",
                      t, chosen[i]);
          ++counts[chosen[i]];
        }
      }
    }
  });

  // The next row for a copy of each sequence, by expert, and the end of its rows.
  auto* next = static_cast<int32_t*>(cpu_stream(stream).scratch(sequences * experts * 8));
  int32_t* end = next + sequences * experts;
  const int64_t piece_rows = args.piece_rows > 0 ? args.piece_rows : args.rows;
  const int64_t pieces = args.piece_rows > 0 ? args.rows / piece_rows : 1;
  const int64_t each = experts / pieces;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    int32_t* offsets = args.offsets.as<int32_t>() + piece * (each + 1);
    const int64_t first = piece * piece_rows;
    int64_t total = 0;
    for (int64_t i = 0; i < each; ++i) {
      const int64_t e = piece * each + i;
      offsets[i] = static_cast<int32_t>(total);
      for (int64_t b = 0; b < sequences; ++b) {
        next[b * experts + e] = static_cast<int32_t>(first + total);
        total += std::min<int64_t>(args.counts.row<int32_t>(b)[e], capacity_left(b, e));
        end[b * experts + e] = static_cast<int32_t>(first + total);
      }
    }
    TUTTI_CHECK(total <= piece_rows, "assign_rows: {} copies exceed the declared bound of {} rows",
                total, piece_rows);
    offsets[each] = static_cast<int32_t>(total);
  }

  parallel_ranges(sequences, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t b = first; b < last; ++b) {
      int32_t* to = next + b * experts;
      for (int64_t t = b * args.sequence; t < (b + 1) * args.sequence; ++t) {
        const int32_t* chosen = args.experts.row<int32_t>(t);
        int32_t* position = args.positions.row<int32_t>(t);
        for (int64_t i = 0; i < k; ++i) {
          const int32_t e = chosen[i];
          position[i] = to[e] < end[b * experts + e] ? to[e]++ : -1;
        }
      }
    }
  });
  record(stream, what, begin);
}

}  // namespace tutti::engine
