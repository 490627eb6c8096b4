// Sums in f64 (update_ops.h states the contracts). The sums of squares of fixed-size blocks are
// added in order, whichever thread computed them.
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/squared_norm.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

double sum_of_squares(const float* x, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  constexpr auto kWidth = static_cast<int64_t>(hn::MaxLanes(d));
  auto s0 = hn::Zero(d);
  auto s1 = s0;
  auto s2 = s0;
  auto s3 = s0;
  int64_t j = 0;
  for (; j + 4 * kWidth <= count; j += 4 * kWidth) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(half, x + j));
    const auto x1 = hn::PromoteTo(d, hn::LoadU(half, x + j + kWidth));
    const auto x2 = hn::PromoteTo(d, hn::LoadU(half, x + j + 2 * kWidth));
    const auto x3 = hn::PromoteTo(d, hn::LoadU(half, x + j + 3 * kWidth));
    s0 = hn::MulAdd(x0, x0, s0);
    s1 = hn::MulAdd(x1, x1, s1);
    s2 = hn::MulAdd(x2, x2, s2);
    s3 = hn::MulAdd(x3, x3, s3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; j < count; ++j) sum += static_cast<double>(x[j]) * static_cast<double>(x[j]);
  return sum;
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(sum_of_squares);

void cpu_squared_norm(Stream& stream, const SquaredNormArgs& args) {
  constexpr int64_t kBlock = 16384;
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const float* x = args.x.as<float>();
  const int64_t count = args.x.count;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  auto* sums = static_cast<double*>(
      cpu_stream(stream).scratch(blocks * static_cast<int64_t>(sizeof(double))));
  const auto function = HWY_DYNAMIC_DISPATCH(sum_of_squares);
  parallel_ranges(blocks, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t b = first; b < last; ++b) {
      sums[b] = function(x + b * kBlock, std::min(kBlock, count - b * kBlock));
    }
  });
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += sums[b];
  *args.sum_of_squares = total;
  record(stream, what, begin);
}

void cpu_sum(Stream& /*stream*/, const SumArgs& args) {
  const float* x = args.x.as<float>();
  double sum = 0;
  for (int64_t i = 0; i < args.x.count; ++i) sum += static_cast<double>(x[i]);
  *args.total = args.accumulate ? *args.total + sum : sum;
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
