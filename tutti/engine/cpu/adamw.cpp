// One pass over gradient, master and moments; the formula is in ops.h. Bound by memory: 28 bytes
// per parameter, 30 with bf16 weights.
#include <cmath>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

#ifndef TUTTI_ENGINE_CPU_ADAMW_
#define TUTTI_ENGINE_CPU_ADAMW_
namespace tutti::engine {

// What is the same for all elements of a segment.
struct AdamwFactors {
  float clip, beta1, rest1, beta2, rest2, epsilon;
  float step_size;     // learning_rate / bias1
  float inverse_root;  // 1 / sqrt(bias2)
  float decay;         // learning_rate * weight_decay
};

}  // namespace tutti::engine
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

template <bool kWeights>
HWY_INLINE void update(const AdamwArgs& args, const AdamwFactors& f, int64_t first, int64_t count) {
  const float* gradient = args.gradient.as<float>() + first;
  float* master = args.master.as<float>() + first;
  float* first_moment = args.m.as<float>() + first;
  float* second_moment = args.v.as<float>() + first;
  bf16* weights = kWeights ? args.weights.as<bf16>() + first : nullptr;
  const F32 clip = set(f.clip);
  const F32 beta1 = set(f.beta1);
  const F32 rest1 = set(f.rest1);
  const F32 beta2 = set(f.beta2);
  const F32 rest2 = set(f.rest2);
  const F32 epsilon = set(f.epsilon);
  const F32 step_size = set(f.step_size);
  const F32 inverse_root = set(f.inverse_root);
  const F32 decay = set(f.decay);
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
    const F32 g = hn::Mul(load(gradient + j, block), clip);
    const F32 m = hn::MulAdd(beta1, load(first_moment + j, block), hn::Mul(rest1, g));
    const F32 v = hn::MulAdd(beta2, load(second_moment + j, block), hn::Mul(rest2, hn::Mul(g, g)));
    const F32 root = hn::MulAdd(hn::Sqrt(v), inverse_root, epsilon);
    F32 p = load(master + j, block);
    p = hn::Sub(p, hn::MulAdd(step_size, hn::Div(m, root), hn::Mul(decay, p)));
    store(m, first_moment + j, block);
    store(v, second_moment + j, block);
    store(p, master + j, block);
    if constexpr (kWeights) store(p, weights + j, block);
  });
}

void adamw_range(const AdamwArgs& args, const AdamwFactors& factors, int64_t first, int64_t count) {
  if (args.weights) {
    update<true>(args, factors, first, count);
  } else {
    update<false>(args, factors, first, count);
  }
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(adamw_range);

void cpu_adamw(Stream& stream, const AdamwArgs& args) {
  const int64_t count = args.master.count;
  TUTTI_CHECK(args.gradient.count == count && args.m.count == count && args.v.count == count &&
                  (!args.weights || args.weights.count == count),
              "adamw: {} gradients, {} parameters, {} and {} moments, {} weights",
              args.gradient.count, count, args.m.count, args.v.count, args.weights.count);
  TUTTI_CHECK(args.step >= 1, "adamw: step {}", args.step);
  int64_t covered = 0;
  for (const AdamwSegment& segment : args.segments) {
    TUTTI_CHECK(segment.first == covered && segment.count >= 0, "adamw: segment {}+{} after {}",
                segment.first, segment.count, covered);
    covered += segment.count;
  }
  TUTTI_CHECK(covered == count, "adamw: segments cover {} of {} parameters", covered, count);

  constexpr int64_t kGrain = 4096;
  const double begin = begin_op(stream);
  const auto step = static_cast<double>(args.step);
  const double bias1 = 1 - std::pow(static_cast<double>(args.beta1), step);
  const double bias2 = 1 - std::pow(static_cast<double>(args.beta2), step);
  AdamwFactors shared{};
  shared.clip = args.clip;
  shared.beta1 = args.beta1;
  shared.rest1 = 1 - args.beta1;
  shared.beta2 = args.beta2;
  shared.rest2 = 1 - args.beta2;
  shared.epsilon = args.epsilon;
  shared.step_size = static_cast<float>(static_cast<double>(args.learning_rate) / bias1);
  shared.inverse_root = static_cast<float>(1 / std::sqrt(bias2));
  const auto function = HWY_DYNAMIC_DISPATCH(adamw_range);
  parallel_ranges(count, kGrain, [&](int64_t range_first, int64_t range_last, int) {
    auto segment = std::partition_point(
        args.segments.begin(), args.segments.end(),
        [&](const AdamwSegment& s) { return s.first + s.count <= range_first; });
    for (; segment != args.segments.end() && segment->first < range_last; ++segment) {
      const int64_t first = std::max(segment->first, range_first);
      const int64_t last = std::min(segment->first + segment->count, range_last);
      AdamwFactors factors = shared;
      factors.decay = args.learning_rate * segment->weight_decay;
      function(args, factors, first, last - first);
    }
  });
  record(stream, "adamw", {count}, 0,
         static_cast<double>(args.gradient.bytes() + 2 * args.master.bytes() + 2 * args.m.bytes() +
                             2 * args.v.bytes() + args.weights.bytes()),
         begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
