// Two passes over a row of logits: maximum and sum of exponentials in one, chunk by chunk,
// rescaling the sum when the maximum grows (Milakov & Gimelshein 2018, "Online normalizer
// calculation for softmax"); then the gradient. The second pass walks upwards and loads a block
// before it stores it: element j of a bf16 row lies at or before element j of an f32 row that
// starts at the same address, so overlaid gradients never reach unread logits.
#include <atomic>
#include <cmath>
#include <limits>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

inline constexpr int64_t kChunk = 2048;  // stays in the first-level cache between its two sweeps

// The lanes of a block that exist; the others become `value`.
HWY_INLINE F32 or_else(F32 v, WholeBlock /*block*/, F32 /*value*/) { return v; }
HWY_INLINE F32 or_else(F32 v, PartBlock block, F32 value) {
  return hn::IfThenElse(hn::FirstN(Tag(), static_cast<size_t>(block.count)), v, value);
}

template <typename T>
HWY_INLINE float maximum(const T* x, int64_t count) {
  const F32 lowest = set(-std::numeric_limits<float>::max());
  F32 slots[kSlots] = {lowest, lowest, lowest, lowest};
  for_lanes(count, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
    slots[slot] = hn::Max(slots[slot], or_else(load(x + j, block), block, lowest));
  });
  return hn::GetLane(
      hn::MaxOfLanes(Tag(), hn::Max(hn::Max(slots[0], slots[1]), hn::Max(slots[2], slots[3]))));
}

template <typename T>
HWY_INLINE float sum_of_exp(const T* x, int64_t count, float shift) {
  SlotSum sums;
  const F32 offset = set(shift);
  for_lanes(count, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
    const F32 e = exp(hn::Sub(load(x + j, block), offset));
    sums.slots[slot] = hn::Add(sums.slots[slot], or_else(e, block, zero()));
  });
  return sums.total();
}

template <typename T>
float log_sum_exp(const T* x, int64_t count) {
  float highest = -std::numeric_limits<float>::max();
  float total = 0;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t width = count - begin < kChunk ? count - begin : kChunk;
    const float chunk = maximum(x + begin, width);
    if (chunk > highest) {
      total *= std::exp(highest - chunk);
      highest = chunk;
    }
    total += sum_of_exp(x + begin, width, highest);
  }
  return highest + std::log(total);
}

// out = scale * exp(x - lse); out may start at x.
template <typename From, typename To>
void scaled_softmax(const From* x, To* out, int64_t count, float lse, float scale) {
  const F32 offset = set(lse);
  const F32 factor = set(scale);
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
    store(hn::Mul(exp(hn::Sub(load(x + j, block), offset)), factor), out + j, block);
    // The compiler believes that f32 loads and bf16 stores never meet: keep their order.
    std::atomic_signal_fence(std::memory_order_acq_rel);
  });
}

HWY_INLINE float value(float x) { return x; }
HWY_INLINE float value(bf16 x) { return to_f32(x); }
HWY_INLINE void assign(float& to, float x) { to = x; }
HWY_INLINE void assign(bf16& to, float x) { to = to_bf16(x); }

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
        const float at_target = args.gradient_scale * (std::exp(-loss[r]) - 1.0F);
        scaled_softmax(x, d, args.vocabulary, lse, args.gradient_scale);
        assign(d[target], at_target);
        written = args.vocabulary;
      }
    }
    if (gradient) {
      for (int64_t j = written; j < args.d_logits.cols; ++j) assign(d[j], 0.0F);
    }
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

namespace {

void check_cross_entropy(const CrossEntropyArgs& args) {
  const int64_t n = args.logits.rows;
  const Matrix& d = args.d_logits;
  TUTTI_CHECK(args.targets.count == n && args.loss.count == n && (!d || d.rows == n),
              "cross_entropy: {} rows, {} targets, {} losses, {} gradients", n, args.targets.count,
              args.loss.count, d.rows);
  TUTTI_CHECK(args.vocabulary <= args.logits.cols && (!d || args.vocabulary <= d.cols),
              "cross_entropy: vocabulary {} in {} and {} columns", args.vocabulary,
              args.logits.cols, d.cols);
  if (d && d.data == args.logits.data) {
    const int64_t row_bytes = args.logits.ld * dtype_bytes(args.logits.dtype);
    TUTTI_CHECK(dtype_bytes(d.dtype) <= dtype_bytes(args.logits.dtype) &&
                    d.ld * dtype_bytes(d.dtype) == row_bytes,
                "cross_entropy: gradient {} with ld {} over logits {} with ld {}",
                dtype_name(d.dtype), d.ld, dtype_name(args.logits.dtype), args.logits.ld);
  }
  for (int64_t r = 0; r < n; ++r) {
    const int64_t target = args.targets.as<int32_t>()[r];
    TUTTI_CHECK(target < args.vocabulary, "cross_entropy: target {} of row {} is not below {}",
                target, r, args.vocabulary);
  }
}

}  // namespace

void cpu_cross_entropy(Stream& stream, const CrossEntropyArgs& args) {
  check_cross_entropy(args);
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
  record(stream, "cross_entropy", {args.logits.rows, args.vocabulary}, 0,
         static_cast<double>(args.logits.bytes() + args.targets.bytes() + args.loss.bytes() +
                             args.d_logits.bytes()),
         begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
