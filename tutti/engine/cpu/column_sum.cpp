// Threads split the columns, so the sum of a column never depends on their number. Four rows are
// added at a time to a strip of sums that stays in the L1 cache.
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/column_sum.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

inline constexpr int64_t kStrip = 1024;

template <typename T>
void sum_columns(const ColumnSumArgs& args, int64_t first, int64_t last) {
  for (int64_t begin = first; begin < last; begin += kStrip) {
    const int64_t width = last - begin < kStrip ? last - begin : kStrip;
    float* out = args.out.as<float>() + begin;
    HWY_ALIGN float sums[kStrip] = {};
    int64_t r = 0;
    for (; r + 4 <= args.x.rows; r += 4) {
      const T* x0 = args.x.row<T>(r) + begin;
      const T* x1 = x0 + args.x.ld;
      const T* x2 = x1 + args.x.ld;
      const T* x3 = x2 + args.x.ld;
      for_lanes(width, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
        const F32 low = hn::Add(load(x0 + j, block), load(x1 + j, block));
        const F32 high = hn::Add(load(x2 + j, block), load(x3 + j, block));
        store(hn::Add(load(sums + j, block), hn::Add(low, high)), sums + j, block);
      });
    }
    for (; r < args.x.rows; ++r) {
      const T* x = args.x.row<T>(r) + begin;
      for_lanes(width, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
        store(hn::Add(load(sums + j, block), load(x + j, block)), sums + j, block);
      });
    }
    const bool accumulate = args.beta != 0;
    for_lanes(width, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
      const F32 sum = load(sums + j, block);
      store(accumulate ? hn::Add(load(out + j, block), sum) : sum, out + j, block);
    });
  }
}

void sum_columns_f32(const ColumnSumArgs& args, int64_t first, int64_t last) {
  sum_columns<float>(args, first, last);
}
void sum_columns_bf16(const ColumnSumArgs& args, int64_t first, int64_t last) {
  sum_columns<bf16>(args, first, last);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(sum_columns_f32);
HWY_EXPORT(sum_columns_bf16);

void cpu_column_sum(Stream& stream, const ColumnSumArgs& args) {
  const OpRecord what = describe(args);
  constexpr int64_t kGrain = 64;
  const double begin = begin_op(stream);
  const auto function = args.x.dtype == DType::bf16 ? HWY_DYNAMIC_DISPATCH(sum_columns_bf16)
                                                    : HWY_DYNAMIC_DISPATCH(sum_columns_f32);
  parallel_ranges(args.x.cols, kGrain,
                  [&](int64_t first, int64_t last, int) { function(args, first, last); });
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
