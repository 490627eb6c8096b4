// The softmax of a row of logits and its gradients, chunk by chunk, shared by the cross-entropies.
//
// Two passes: the first computes maximum and sum of exponentials, and rescales the sum when the
// maximum grows (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"); the
// second computes the gradient. It runs in ascending order and loads a block before it stores it:
// element j of a bf16 row lies at or before element j of an f32 row that starts at the same
// address, so overlaid gradients never overwrite unread logits.

// No #pragma once: included again for every target, like simd.h, which must come before it.
#if defined(TUTTI_ENGINE_CPU_SOFTMAX_ROW_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_ENGINE_CPU_SOFTMAX_ROW_H_
#undef TUTTI_ENGINE_CPU_SOFTMAX_ROW_H_
#else
#define TUTTI_ENGINE_CPU_SOFTMAX_ROW_H_  // NOLINT(readability-identifier-naming): an include guard
#endif

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

inline constexpr int64_t kChunk = 2048;  // stays in the L1 cache between its two sweeps

// Keeps the valid lanes of a block and sets the others to `value`.
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
HWY_INLINE float sum_of_exp(const T* x, int64_t count, float shift, float inverse_temperature) {
  SlotSum sums;
  const F32 offset = set(shift);
  const F32 factor = set(inverse_temperature);
  for_lanes(count, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
    const F32 e = exp(hn::Mul(hn::Sub(load(x + j, block), offset), factor));
    sums.slots[slot] = hn::Add(sums.slots[slot], or_else(e, block, zero()));
  });
  return sums.total();
}

// softmax(x / T) of element j is exp((x[j] - highest) / T - log_sum). The two are kept separate
// because their sum would round: at logits of 1e4 by a thousandth.
struct RowSum {
  float highest;
  float log_sum;
};

template <typename T>
RowSum row_sum(const T* x, int64_t count, float inverse_temperature) {
  float highest = -std::numeric_limits<float>::max();
  float total = 0;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t width = count - begin < kChunk ? count - begin : kChunk;
    const float chunk = maximum(x + begin, width);
    if (chunk > highest) {
      total *= std::exp((highest - chunk) * inverse_temperature);
      highest = chunk;
    }
    total += sum_of_exp(x + begin, width, highest, inverse_temperature);
  }
  return {highest, std::log(total)};
}

template <typename T>
float log_sum_exp(const T* x, int64_t count) {
  const RowSum sum = row_sum(x, count, 1);
  return sum.highest + sum.log_sum;
}

// out = scale * exp(x - lse) * (1 - (x * inverse_cap)^2); out may start at x. The last factor is
// exactly 1 without a cap.
template <typename From, typename To>
void scaled_softmax(const From* x, To* out, int64_t count, float lse, float scale,
                    float inverse_cap = 0) {
  const F32 offset = set(lse);
  const F32 factor = set(scale);
  const F32 cap = set(inverse_cap);
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
    const F32 v = load(x + j, block);
    const F32 t = hn::Mul(v, cap);
    const F32 slope = hn::NegMulAdd(t, t, set(1.0F));
    store(hn::Mul(hn::Mul(exp(hn::Sub(v, offset)), factor), slope), out + j, block);
    // The compiler assumes that f32 loads and bf16 stores never alias: keep their order.
    std::atomic_signal_fence(std::memory_order_acq_rel);
  });
}

HWY_INLINE float value(float x) { return x; }
HWY_INLINE float value(bf16 x) { return to_f32(x); }
HWY_INLINE void assign(float& to, float x) { to = x; }
HWY_INLINE void assign(bf16& to, float x) { to = to_bf16(x); }

// d = scale * (softmax - onehot) of a row whose cross-entropy is `loss`; d may start at x.
// inverse_cap: as scaled_softmax.
template <typename From, typename To>
void cross_entropy_gradient(const From* x, To* d, int64_t count, int64_t target, float lse,
                            float loss, float scale, float inverse_cap = 0) {
  const float t = value(x[target]) * inverse_cap;
  const float at_target = scale * (std::exp(-loss) - 1.0F) * (1.0F - t * t);
  scaled_softmax(x, d, count, lse, scale, inverse_cap);
  assign(d[target], at_target);
}

// Zeroes elements [begin, end) of a gradient.
template <typename To>
void clear(To* d, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; ++j) assign(d[j], 0.0F);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_ENGINE_CPU_SOFTMAX_ROW_H_
