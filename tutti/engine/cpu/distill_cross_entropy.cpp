// Like cross_entropy.cpp, over two rows of logits at a time.
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/loss_check.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/distill_cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/softmax_row.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

// The tempered softmax of one row, element by element.
struct Tempered {
  F32 highest;
  F32 log_sum;
  F32 factor;
  HWY_INLINE Tempered(RowSum sum, float inverse_temperature)
      : highest(set(sum.highest)), log_sum(set(sum.log_sum)), factor(set(inverse_temperature)) {}
  HWY_INLINE F32 log_softmax(F32 x) const {
    return hn::MulSub(hn::Sub(x, highest), factor, log_sum);
  }
};

float log_softmax(float x, RowSum sum, float inverse_temperature) {
  return (x - sum.highest) * inverse_temperature - sum.log_sum;
}

// KL(softmax(t / T) || softmax(x / T)).
template <typename From>
float divergence_of(const From* x, RowSum x_sum, const From* t, RowSum t_sum, int64_t count,
                    float inverse_temperature) {
  const Tempered student(x_sum, inverse_temperature);
  const Tempered teacher(t_sum, inverse_temperature);
  SlotSum sums;
  for_lanes(count, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
    const F32 log_p = teacher.log_softmax(load(t + j, block));
    const F32 log_q = student.log_softmax(load(x + j, block));
    const F32 term = hn::Mul(exp(log_p), hn::Sub(log_p, log_q));
    sums.slots[slot] = hn::Add(sums.slots[slot], or_else(term, block, zero()));
  });
  return sums.total();
}

// d = hard * softmax(x) + soft * (softmax(x / T) - softmax(t / T)); d may start at x.
template <typename From, typename To>
void mixed_gradient(const From* x, float lse, RowSum x_sum, const From* t, RowSum t_sum, To* d,
                    int64_t count, float inverse_temperature, float hard, float soft) {
  const Tempered student(x_sum, inverse_temperature);
  const Tempered teacher(t_sum, inverse_temperature);
  const F32 offset = set(lse);
  const F32 hard_factor = set(hard);
  const F32 soft_factor = set(soft);
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
    const F32 logit = load(x + j, block);
    const F32 apart =
        hn::Sub(exp(student.log_softmax(logit)), exp(teacher.log_softmax(load(t + j, block))));
    const F32 plain = hn::Mul(exp(hn::Sub(logit, offset)), hard_factor);
    store(hn::MulAdd(apart, soft_factor, plain), d + j, block);
    // The compiler assumes that f32 loads and bf16 stores never alias: keep their order.
    std::atomic_signal_fence(std::memory_order_acq_rel);
  });
}

template <typename From, typename To>
void distill_rows(const DistillCrossEntropyArgs& args, int64_t begin, int64_t end) {
  const auto* targets = args.targets.as<int32_t>();
  auto* loss = args.loss.as<float>();
  auto* divergence = args.divergence.as<float>();
  const int64_t count = args.vocabulary;
  const float inverse = 1 / args.temperature;
  const float hard = args.gradient_scale * (1 - args.weight);
  const float soft = args.gradient_scale * args.weight * args.temperature;
  for (int64_t r = begin; r < end; ++r) {
    const From* x = args.logits.row<From>(r);
    const From* t = args.teacher_logits.row<From>(r);
    To* d = args.d_logits ? args.d_logits.row<To>(r) : nullptr;
    const int64_t target = targets[r];
    if (target < 0) {
      loss[r] = divergence[r] = 0;
      if (d != nullptr) clear(d, 0, args.d_logits.cols);
      continue;
    }
    const float lse = log_sum_exp(x, count);
    const float x_target = value(x[target]);  // d may overlay it
    const RowSum x_sum = row_sum(x, count, inverse);
    const RowSum t_sum = row_sum(t, count, inverse);
    loss[r] = lse - x_target;
    divergence[r] =
        args.temperature * args.temperature * divergence_of(x, x_sum, t, t_sum, count, inverse);
    if (d == nullptr) continue;
    if (args.weight == 0) {
      cross_entropy_gradient(x, d, count, target, lse, loss[r], args.gradient_scale);
    } else {
      const float apart = std::exp(log_softmax(x_target, x_sum, inverse)) -
                          std::exp(log_softmax(value(t[target]), t_sum, inverse));
      const float at_target = hard * (std::exp(-loss[r]) - 1.0F) + soft * apart;
      mixed_gradient(x, lse, x_sum, t, t_sum, d, count, inverse, hard, soft);
      assign(d[target], at_target);
    }
    clear(d, count, args.d_logits.cols);
  }
}

void distill_f32_f32(const DistillCrossEntropyArgs& args, int64_t begin, int64_t end) {
  distill_rows<float, float>(args, begin, end);
}
void distill_f32_bf16(const DistillCrossEntropyArgs& args, int64_t begin, int64_t end) {
  distill_rows<float, bf16>(args, begin, end);
}
void distill_bf16_f32(const DistillCrossEntropyArgs& args, int64_t begin, int64_t end) {
  distill_rows<bf16, float>(args, begin, end);
}
void distill_bf16_bf16(const DistillCrossEntropyArgs& args, int64_t begin, int64_t end) {
  distill_rows<bf16, bf16>(args, begin, end);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(distill_f32_f32);
HWY_EXPORT(distill_f32_bf16);
HWY_EXPORT(distill_bf16_f32);
HWY_EXPORT(distill_bf16_bf16);

void cpu_distill_cross_entropy(Stream& stream, const DistillCrossEntropyArgs& args) {
  const OpRecord what = describe(args);
  check_targets(what.op, args.targets, args.vocabulary);
  const double begin = begin_op(stream);
  const bool narrow_out = args.d_logits && args.d_logits.dtype == DType::bf16;
  auto function = HWY_DYNAMIC_DISPATCH(distill_f32_f32);
  if (args.logits.dtype == DType::bf16) {
    function = narrow_out ? HWY_DYNAMIC_DISPATCH(distill_bf16_bf16)
                          : HWY_DYNAMIC_DISPATCH(distill_bf16_f32);
  } else if (narrow_out) {
    function = HWY_DYNAMIC_DISPATCH(distill_f32_bf16);
  }
  parallel_ranges(args.logits.rows, 1,
                  [&](int64_t first, int64_t last, int) { function(args, first, last); });
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
