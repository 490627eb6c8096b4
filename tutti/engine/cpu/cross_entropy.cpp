#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/loss_check.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/softmax_row.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

template <typename From, typename To>
void cross_entropy_rows(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  const auto* targets = args.targets.as<int32_t>();
  auto* loss = args.loss.as<float>();
  const bool gradient = static_cast<bool>(args.d_logits);
  for (int64_t r = begin; r < end; ++r) {
    const From* x = args.logits.row<From>(r);
    To* d = gradient ? args.d_logits.row<To>(r) : nullptr;
    const int64_t target = targets[r];
    int64_t written = 0;
    if (target < 0) {
      loss[r] = 0;
    } else {
      const float lse = log_sum_exp(x, args.vocabulary);
      loss[r] = lse - value(x[target]);
      if (gradient) {
        cross_entropy_gradient(x, d, args.vocabulary, target, lse, loss[r], args.gradient_scale,
                               args.softcap > 0 ? 1 / args.softcap : 0);
        written = args.vocabulary;
      }
    }
    if (gradient) clear(d, written, args.d_logits.cols);
  }
}

void rows_f32_f32(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  cross_entropy_rows<float, float>(args, begin, end);
}
void rows_f32_bf16(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  cross_entropy_rows<float, bf16>(args, begin, end);
}
void rows_bf16_f32(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  cross_entropy_rows<bf16, float>(args, begin, end);
}
void rows_bf16_bf16(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  cross_entropy_rows<bf16, bf16>(args, begin, end);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(rows_f32_f32);
HWY_EXPORT(rows_f32_bf16);
HWY_EXPORT(rows_bf16_f32);
HWY_EXPORT(rows_bf16_bf16);

void cpu_cross_entropy(Stream& stream, const CrossEntropyArgs& args) {
  const OpRecord what = describe(args);
  check_targets(what.op, args.targets, args.vocabulary);
  const double begin = begin_op(stream);
  const bool narrow_out = args.d_logits && args.d_logits.dtype == DType::bf16;
  auto function = HWY_DYNAMIC_DISPATCH(rows_f32_f32);
  if (args.logits.dtype == DType::bf16) {
    function =
        narrow_out ? HWY_DYNAMIC_DISPATCH(rows_bf16_bf16) : HWY_DYNAMIC_DISPATCH(rows_bf16_f32);
  } else if (narrow_out) {
    function = HWY_DYNAMIC_DISPATCH(rows_f32_bf16);
  }
  parallel_ranges(args.logits.rows, 1,
                  [&](int64_t first, int64_t last, int) { function(args, first, last); });
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
