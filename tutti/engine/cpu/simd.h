// Vector helpers of the Highway kernels: loads and stores of f32 and bf16 as f32 lanes, loops over
// a row with its remainder, sums, exp, sigmoid and tanh. Compiled once per instruction set, so a
// source that uses it follows Highway's pattern:
//
//   #include "tutti/engine/cpu/isa.h"  // which targets; with the other headers, before the rest
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "tutti/engine/cpu/norm.cpp"  // itself
//   #include <hwy/foreach_target.h>
//   #include "tutti/engine/cpu/simd.h"
//
//   HWY_BEFORE_NAMESPACE();
//   namespace tutti::engine::HWY_NAMESPACE { ... code per instruction set ... }
//   HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE
//   namespace tutti::engine { HWY_EXPORT(f); ... HWY_DYNAMIC_DISPATCH(f)(...) ... }
//   #endif
//
// Threading stays outside: code per instruction set works on a given range.

// No #pragma once: this header is included again for every target (see hwy/foreach_target.h).
#if defined(TUTTI_ENGINE_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_ENGINE_CPU_SIMD_H_
#undef TUTTI_ENGINE_CPU_SIMD_H_
#else
#define TUTTI_ENGINE_CPU_SIMD_H_  // NOLINT(readability-identifier-naming): an include guard
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tutti/base/dtype.h"

#if (HWY_TARGETS & (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)) != 0
#error "include tutti/engine/cpu/isa.h before hwy/foreach_target.h"
#endif

// Put after the parameter list of a lambda given to for_lanes.
#ifndef TUTTI_LANES_BODY
#define TUTTI_LANES_BODY HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using F32 = hn::Vec<Tag>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

// How many lanes of a block are inside the row: all (at compile time), or the first `count`.
struct WholeBlock {};
struct PartBlock {
  int64_t count;
};

HWY_INLINE F32 set(float x) { return hn::Set(Tag(), x); }
HWY_INLINE F32 zero() { return hn::Zero(Tag()); }

HWY_INLINE F32 load(const float* p, WholeBlock /*block*/ = {}) { return hn::LoadU(Tag(), p); }

HWY_INLINE F32 load(const bf16* p, WholeBlock /*block*/ = {}) {
  const hn::Rebind<uint16_t, Tag> d16;
  const hn::Rebind<uint32_t, Tag> d32;
  const auto upper_half = hn::LoadU(d16, &p->bits);
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(d32, upper_half)));
}

// Lanes beyond the row are zero, and memory beyond the row is not read.
template <typename T>
HWY_INLINE F32 load(const T* p, PartBlock block) {
  T lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(block.count) * sizeof(T));
  return load(lanes);
}

HWY_INLINE void store(F32 v, float* p, WholeBlock /*block*/ = {}) { hn::StoreU(v, Tag(), p); }

// Rounds to nearest even; NaN becomes a quiet NaN. Same bits as to_bf16().
HWY_INLINE void store(F32 v, bf16* p, WholeBlock /*block*/ = {}) {
  const hn::Rebind<uint16_t, Tag> d16;
  const hn::Rebind<uint32_t, Tag> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));
  const auto result = hn::BitCast(
      d32, hn::IfThenElse(hn::IsNaN(v), hn::BitCast(Tag(), quiet), hn::BitCast(Tag(), rounded)));
  hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(result)), d16, &p->bits);
}

template <typename T>
HWY_INLINE void store(F32 v, T* p, PartBlock block) {
  T lanes[kLanes];
  store(v, lanes);
  std::memcpy(p, lanes, static_cast<size_t>(block.count) * sizeof(T));
}

// Sum over lanes.
HWY_INLINE float sum(F32 v) { return hn::GetLane(hn::SumOfLanes(Tag(), v)); }

// Calls body(j, block, slot) for the blocks of kLanes columns j of [0, n), unrolled by four with
// slot = std::integral_constant 0..3, so that sums can use four independent registers. The last
// block may be a PartBlock. body is `[&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY { ...
// }`.
inline constexpr int kSlots = 4;
template <int slot>
using Slot = std::integral_constant<int, slot>;

template <typename Body>
HWY_INLINE void for_lanes(int64_t n, const Body& body) {
  int64_t j = 0;
  for (; j + kSlots * kLanes <= n; j += kSlots * kLanes) {
    body(j, WholeBlock(), Slot<0>());
    body(j + kLanes, WholeBlock(), Slot<1>());
    body(j + 2 * kLanes, WholeBlock(), Slot<2>());
    body(j + 3 * kLanes, WholeBlock(), Slot<3>());
  }
  for (; j + kLanes <= n; j += kLanes) body(j, WholeBlock(), Slot<0>());
  if (j < n) body(j, PartBlock{n - j}, Slot<1>());
}

// A sum in kSlots registers. (An implicit constructor would be compiled for the baseline.)
struct SlotSum {
  F32 slots[kSlots];
  HWY_INLINE SlotSum() : slots{zero(), zero(), zero(), zero()} {}
  HWY_INLINE float total() const {
    return sum(hn::Add(hn::Add(slots[0], slots[1]), hn::Add(slots[2], slots[3])));
  }
};

// v clamped to [low, high]; NaN stays NaN.
HWY_INLINE F32 clamp(F32 v, float low, float high) {
  const F32 l = set(low);
  const F32 h = set(high);
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(v, l), l, hn::IfThenElse(hn::Gt(v, h), h, v));
#else
  return hn::Max(l, hn::Min(h, v));  // x86 returns the second operand when one is NaN
#endif
}

// e^x = mantissa * 2^exponent, for |x| < 1e6. x = n ln2 + r, |r| <= ln2 / 2; e^r by the polynomial
// of Cephes' expf.
struct ScaledExp {
  F32 mantissa;
  hn::Vec<hn::Rebind<int32_t, Tag>> exponent;
};
HWY_INLINE ScaledExp scaled_exp(F32 x) {
  const hn::Rebind<int32_t, Tag> di;
  const F32 magic = set(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const F32 shifted = hn::MulAdd(x, set(1.44269504F), magic);
  const F32 n = hn::Sub(shifted, magic);
  F32 r = hn::NegMulAdd(n, set(0.693359375F), x);
  r = hn::NegMulAdd(n, set(-2.12194440e-4F), r);
  F32 p = set(1.9875691500e-4F);
  p = hn::MulAdd(p, r, set(1.3981999507e-3F));
  p = hn::MulAdd(p, r, set(8.3334519073e-3F));
  p = hn::MulAdd(p, r, set(4.1665795894e-2F));
  p = hn::MulAdd(p, r, set(1.6666665459e-1F));
  p = hn::MulAdd(p, r, set(5.0000001201e-1F));
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), set(1.0F));
  return {p, hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic))};
}

// 2^k for k in [-126, 127]; 128 gives infinity.
HWY_INLINE F32 power_of_2(hn::Vec<hn::Rebind<int32_t, Tag>> k) {
  const hn::Rebind<int32_t, Tag> di;
  return hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::Add(k, hn::Set(di, 127))));
}

// e^x with a relative error below 2e-7 if the result is a normal number; 0 and infinity outside
// that range; NaN stays NaN.
HWY_INLINE F32 exp(F32 x) {
  // e^-105 rounds to 0 and e^89 is infinite; 2^exponent as two factors covers both ends.
  const ScaledExp e = scaled_exp(clamp(x, -105.0F, 89.0F));
  const auto half = hn::ShiftRight<1>(e.exponent);
  return hn::Mul(hn::Mul(e.mantissa, power_of_2(half)), power_of_2(hn::Sub(e.exponent, half)));
}

// 1 / (1 + e^-x) with a relative error below 4e-7, 0 below x = -88.4; NaN stays NaN.
// tanh(x) is 2 sigmoid(2x) - 1.
HWY_INLINE F32 sigmoid(F32 x) {
  const ScaledExp e = scaled_exp(clamp(hn::Neg(x), -87.0F, 89.0F));
  return hn::Div(set(1.0F), hn::MulAdd(e.mantissa, power_of_2(e.exponent), set(1.0F)));
}

// tanh x with a relative error below 4e-7; NaN stays NaN. Near 0 the odd polynomial of Cephes'
// tanhf, elsewhere 1 - 2 / (e^2x + 1).
HWY_INLINE F32 tanh(F32 x) {
  const F32 size = hn::Abs(x);
  const F32 square = hn::Mul(x, x);
  F32 p = set(-5.70498872745e-3F);
  p = hn::MulAdd(p, square, set(2.06390887954e-2F));
  p = hn::MulAdd(p, square, set(-5.37397155531e-2F));
  p = hn::MulAdd(p, square, set(1.33314422036e-1F));
  p = hn::MulAdd(p, square, set(-3.33332819422e-1F));
  const F32 near = hn::MulAdd(hn::Mul(p, square), x, x);
  const F32 e = exp(hn::Add(size, size));
  const F32 far = hn::Sub(set(1.0F), hn::Div(set(2.0F), hn::Add(e, set(1.0F))));
  return hn::IfThenElse(hn::Lt(size, set(0.625F)), near, hn::CopySign(far, x));
}

// The largest magnitude of x[0, count), compared as integers: NaN is above infinity, which is above
// all finite numbers.
HWY_INLINE float amax_of(const float* x, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
  }
  return std::bit_cast<float>(most);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_ENGINE_CPU_SIMD_H_
