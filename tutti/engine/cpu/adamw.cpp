// One pass over gradient, master and moments (formula in update_ops.h). Memory bound: 28 bytes per
// parameter, 30 with bf16 weights, 24 with bf16 masters.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "tutti/base/check.h"
#include "tutti/base/rng.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/stochastic_bf16.h"
#include "tutti/engine/update_scalars.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

#ifndef TUTTI_ENGINE_CPU_ADAMW_
#define TUTTI_ENGINE_CPU_ADAMW_
namespace tutti::engine {

// Constants of all elements of a segment.
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

using WordTag = hn::Rebind<uint32_t, Tag>;
using Words = hn::Vec<WordTag>;

HWY_INLINE Words words(F32 v, WholeBlock /*block*/) { return hn::BitCast(WordTag(), v); }
HWY_INLINE Words words(const bf16* p, WholeBlock /*block*/ = {}) {
  return hn::PromoteTo(WordTag(), hn::LoadU(hn::Rebind<uint16_t, Tag>(), &p->bits));
}
// Lanes beyond the row count as zero.
HWY_INLINE Words words(F32 v, PartBlock block) {
  float lanes[kLanes];
  store(v, lanes);
  return words(load(lanes, block), WholeBlock());
}
HWY_INLINE Words words(const bf16* p, PartBlock block) {
  bf16 lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(block.count) * sizeof(bf16));
  return words(lanes);
}

// Words of f32 parameters in registers, and of bf16 parameters as they were stored.
template <typename Block>
HWY_INLINE Words words(F32 v, const float* /*at*/, Block block) {
  return words(v, block);
}
template <typename Block>
HWY_INLINE Words words(F32 /*v*/, const bf16* at, Block block) {
  return words(at, block);
}

// AdamwSums::Arrays in registers.
struct WordSums {
  Words master, m, v, weights;
  HWY_INLINE WordSums() : master(hn::Zero(WordTag())), m(master), v(master), weights(master) {}
  HWY_INLINE void add_to(AdamwSums::Arrays& out) const {
    const Words* arrays[] = {&master, &m, &v, &weights};
    for (size_t i = 0; i < out.size(); ++i) {
      uint32_t lanes[kLanes];  // SumOfLanes adds signed lanes, which must not overflow
      hn::StoreU(*arrays[i], WordTag(), lanes);
      for (const uint32_t lane : lanes) out[i] += lane;
    }
  }
};

// Updates the parameters in place, or with kExact writes them to `exact`, in f32.
template <typename Master, bool kWeights, bool kSums, bool kExact>
HWY_INLINE void update(const AdamwArgs& args, const AdamwFactors& f, int64_t first, int64_t count,
                       float* exact, AdamwSums& sums) {
  const float* gradient = args.gradient.as<float>() + first;
  Master* master = args.master.as<Master>() + first;
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
  WordSums before;
  WordSums after;
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
    const F32 g = hn::Mul(load(gradient + j, block), clip);
    const F32 old_m = load(first_moment + j, block);
    const F32 old_v = load(second_moment + j, block);
    const F32 m = hn::MulAdd(beta1, old_m, hn::Mul(rest1, g));
    const F32 v = hn::MulAdd(beta2, old_v, hn::Mul(rest2, hn::Mul(g, g)));
    const F32 root = hn::MulAdd(hn::Sqrt(v), inverse_root, epsilon);
    F32 p = load(master + j, block);
    if constexpr (kSums) {
      before.master = hn::Add(before.master, words(p, master + j, block));
      before.m = hn::Add(before.m, words(old_m, block));
      before.v = hn::Add(before.v, words(old_v, block));
      if constexpr (kWeights) before.weights = hn::Add(before.weights, words(weights + j, block));
    }
    p = hn::Sub(p, hn::MulAdd(step_size, hn::Div(m, root), hn::Mul(decay, p)));
    store(m, first_moment + j, block);
    store(v, second_moment + j, block);
    if constexpr (kExact) {
      store(p, exact + j, block);
    } else {
      store(p, master + j, block);
    }
    if constexpr (kWeights) store(p, weights + j, block);
    if constexpr (kSums) {
      if constexpr (!kExact) after.master = hn::Add(after.master, words(p, master + j, block));
      after.m = hn::Add(after.m, words(m, block));
      after.v = hn::Add(after.v, words(v, block));
      if constexpr (kWeights) after.weights = hn::Add(after.weights, words(weights + j, block));
    }
  });
  if constexpr (kSums) {
    before.add_to(sums.before);
    after.add_to(sums.after);
  }
}

constexpr int64_t kChunk = 1024;  // elements per rounding pass
// Philox blocks per vector.
constexpr int64_t kBlocks = std::max<int64_t>(1, kLanes / 2);

// The Philox blocks [first, first + blocks) of (key, block, step), as in base/rng.h, in halves;
// `out` has space for kBlocks - 1 more.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void philox_halves(uint64_t key, int64_t first, int64_t blocks, uint64_t step,
                              uint16_t* out) {
  for (int64_t block = 0; block < blocks; ++block) {
    const PhiloxBlock words = philox(key, static_cast<uint64_t>(first + block), step);
    std::memcpy(out + block * kHalvesPerBlock, words.data(), sizeof(words));
  }
}
#else
using Counters = hn::Repartition<uint64_t, Tag>;
using Counter = hn::Vec<Counters>;

// 64-bit product of the lower halves.
HWY_INLINE Counter multiply(Counter a, uint32_t b) {
  const hn::Repartition<uint32_t, Counters> halves;
  return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, hn::Set(Counters(), b)));
}

HWY_INLINE void philox_halves(uint64_t key, int64_t first, int64_t blocks, uint64_t step,
                              uint16_t* out) {
  const Counters d;
  const Counter low = hn::Set(d, 0xffffffffU);
  for (int64_t block = 0; block < blocks; block += kBlocks) {
    const Counter counter = hn::Iota(d, static_cast<uint64_t>(first + block));
    Counter c0 = hn::And(counter, low);
    Counter c1 = hn::ShiftRight<32>(counter);
    Counter c2 = hn::Set(d, step & 0xffffffffU);
    Counter c3 = hn::Set(d, step >> 32);
    auto k0 = static_cast<uint32_t>(key);
    auto k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const Counter p0 = multiply(c0, 0xD2511F53U);
      const Counter p1 = multiply(c2, 0xCD9E8D57U);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, uint64_t{k0}));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, uint64_t{k1}));
      c1 = hn::And(p1, low);
      c3 = hn::And(p0, low);
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    hn::StoreInterleaved2(hn::Or(c0, hn::ShiftLeft<32>(c1)), hn::Or(c2, hn::ShiftLeft<32>(c3)), d,
                          reinterpret_cast<uint64_t*>(out + block * kHalvesPerBlock));
  }
}
#endif

// out = x rounded, for up to kChunk elements that are consecutive in their tensor; `number` is the
// index of the first.
void round_run(const float* x, int64_t count, uint64_t key, int64_t number, uint64_t step,
               bf16* out) {
  alignas(64) uint16_t halves[kChunk + (kBlocks + 2) * kHalvesPerBlock];
  const int64_t first = number / kHalvesPerBlock;
  const int64_t blocks = (number + count - 1) / kHalvesPerBlock - first + 1;
  philox_halves(key, first, blocks, step, halves);
  const uint16_t* half = halves + (number - first * kHalvesPerBlock);
  for (int64_t i = 0; i < count; ++i) out[i].bits = stochastic_bf16(x[i], half[i]);
}

// Elements [first, first + count) of the range; `within` is the index of the first in its segment.
template <bool kSums>
void update_stochastic(const AdamwArgs& args, const AdamwFactors& f,
                       const AdamwSegment::Numbers& numbers, int64_t first, int64_t within,
                       int64_t count, uint64_t step, AdamwSums& sums) {
  float exact[kChunk];
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t size = std::min(kChunk, count - at);
    update<bf16, false, kSums, true>(args, f, first + at, size, exact, sums);
    bf16* out = args.master.as<bf16>() + first + at;
    for (int64_t done = 0; done < size;) {
      const int64_t i = within + at + done;
      const int64_t left = numbers.width - (numbers.phase + i) % numbers.width;
      const int64_t run = std::min(left, size - done);
      round_run(exact + done, run, numbers.key, element_number(numbers, i), step, out + done);
      done += run;
    }
    if constexpr (kSums) {
      for (int64_t i = 0; i < size; ++i) sums.after[0] += out[i].bits;
    }
  }
}

// Updates that do not depend on element numbers.
void adamw_range(const AdamwArgs& args, const AdamwFactors& factors, int64_t first, int64_t count,
                 AdamwSums& sums) {
  const bool sum = args.sums != nullptr;
  if (args.master.dtype == DType::bf16) {
    if (sum) {
      update<bf16, false, true, false>(args, factors, first, count, nullptr, sums);
    } else {
      update<bf16, false, false, false>(args, factors, first, count, nullptr, sums);
    }
  } else if (args.weights) {
    if (sum) {
      update<float, true, true, false>(args, factors, first, count, nullptr, sums);
    } else {
      update<float, true, false, false>(args, factors, first, count, nullptr, sums);
    }
  } else if (sum) {
    update<float, false, true, false>(args, factors, first, count, nullptr, sums);
  } else {
    update<float, false, false, false>(args, factors, first, count, nullptr, sums);
  }
}

void adamw_segment(const AdamwArgs& args, const AdamwFactors& factors, const AdamwSegment& segment,
                   int64_t first, int64_t count, uint64_t step, AdamwSums& sums) {
  if (!args.stochastic) return adamw_range(args, factors, first, count, sums);
  const int64_t within = first - segment.first;
  if (args.sums != nullptr) {
    update_stochastic<true>(args, factors, segment.numbers, first, within, count, step, sums);
  } else {
    update_stochastic<false>(args, factors, segment.numbers, first, within, count, step, sums);
  }
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(adamw_segment);

void cpu_adamw(Stream& stream, const AdamwArgs& args) {
  const int64_t count = args.master.count;
  const OpRecord what = describe(args);

  constexpr int64_t kGrain = 4096;
  const double begin = begin_op(stream);
  const UpdateScalars scalars =
      args.scalars != nullptr
          ? *args.scalars
          : update_scalars(static_cast<double>(args.learning_rate), static_cast<double>(args.step),
                           args.beta1, args.beta2, args.clip);
  AdamwFactors shared{};
  shared.clip = scalars.clip;
  shared.beta1 = args.beta1;
  shared.rest1 = 1 - args.beta1;
  shared.beta2 = args.beta2;
  shared.rest2 = 1 - args.beta2;
  shared.epsilon = args.epsilon;
  shared.step_size = scalars.step_size;
  shared.inverse_root = scalars.inverse_root;
  const auto function = HWY_DYNAMIC_DISPATCH(adamw_segment);
  std::mutex mutex;  // of args.sums
  parallel_ranges(
      scalars.apply == 0 ? 0 : count, kGrain, [&](int64_t range_first, int64_t range_last, int) {
        AdamwSums sums;
        auto segment = std::partition_point(
            args.segments.begin(), args.segments.end(),
            [&](const AdamwSegment& s) { return s.first + s.count <= range_first; });
        for (; segment != args.segments.end() && segment->first < range_last; ++segment) {
          const int64_t first = std::max(segment->first, range_first);
          const int64_t last = std::min(segment->first + segment->count, range_last);
          AdamwFactors factors = shared;
          factors.decay = scalars.learning_rate * segment->weight_decay;
          function(args, factors, *segment, first, last - first,
                   static_cast<uint64_t>(scalars.update), sums);
        }
        if (args.sums == nullptr) return;
        const std::lock_guard lock(mutex);
        for (size_t i = 0; i < sums.before.size(); ++i) {
          args.sums->before[i] += sums.before[i];
          args.sums->after[i] += sums.after[i];
        }
      });
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
