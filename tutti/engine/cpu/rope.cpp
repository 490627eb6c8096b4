// Rotary position embedding on the CPU (Su et al. 2021), in place, by "rotate half":
//   y[i] = x[i] cos(a) - x[i + R/2] sin(a),  y[i + R/2] = x[i + R/2] cos(a) + x[i] sin(a)
// with a = position * inverse_frequency[i]. The inverse rotates by -a. Angles, their reduction and
// their sines are f64: at position 131,072 the error of an angle in f32 would be up to 0.008.
#include "tutti/base/check.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

using Tag64 = hn::ScalableTag<double>;
using F64 = hn::Vec<Tag64>;
inline constexpr int64_t kLanes64 = static_cast<int64_t>(hn::MaxLanes(Tag64()));

HWY_INLINE F64 set64(double x) { return hn::Set(Tag64(), x); }

// Sine and cosine of kLanes64 angles below 2^30: the angle is reduced to [-pi/4, pi/4], and the
// Taylor series are truncated where the next term is below 2e-9.
HWY_INLINE void sine_cosine(F64 angle, float* sine, float* cosine) {
  const hn::Rebind<int64_t, Tag64> di;
  const hn::Rebind<float, Tag64> d32;
  const F64 magic = set64(6755399441055744.0);  // 1.5 * 2^52: adding it rounds to an integer
  const F64 shifted = hn::MulAdd(angle, set64(0.63661977236758134), magic);
  const F64 r = hn::NegMulAdd(hn::Sub(shifted, magic), set64(1.5707963267948966), angle);
  const F64 r2 = hn::Mul(r, r);
  F64 s = set64(1.0 / 362880);
  s = hn::MulAdd(s, r2, set64(-1.0 / 5040));
  s = hn::MulAdd(s, r2, set64(1.0 / 120));
  s = hn::MulAdd(s, r2, set64(-1.0 / 6));
  s = hn::MulAdd(hn::Mul(s, r2), r, r);
  F64 c = set64(-1.0 / 3628800);
  c = hn::MulAdd(c, r2, set64(1.0 / 40320));
  c = hn::MulAdd(c, r2, set64(-1.0 / 720));
  c = hn::MulAdd(c, r2, set64(1.0 / 24));
  c = hn::MulAdd(c, r2, set64(-0.5));
  c = hn::MulAdd(c, r2, set64(1.0));
  // Quadrant q = 0..3 in the low bits: odd quadrants swap sine and cosine; the sign is bit 1 of q
  // for the sine and of q + 1 for the cosine.
  const auto q = hn::BitCast(di, shifted);
  const auto one = hn::Set(di, 1);
  const auto two = hn::Set(di, 2);
  const auto odd = hn::RebindMask(Tag64(), hn::Eq(hn::And(q, one), one));
  const auto sine_sign = hn::ShiftLeft<62>(hn::And(q, two));
  const auto cosine_sign = hn::ShiftLeft<62>(hn::And(hn::Add(q, one), two));
  const F64 sines = hn::Xor(hn::IfThenElse(odd, c, s), hn::BitCast(Tag64(), sine_sign));
  const F64 cosines = hn::Xor(hn::IfThenElse(odd, s, c), hn::BitCast(Tag64(), cosine_sign));
  hn::StoreU(hn::DemoteTo(d32, sines), d32, sine);
  hn::StoreU(hn::DemoteTo(d32, cosines), d32, cosine);
}

// Sine and cosine of one position, each [R/2 rounded up to 16].
void fill_angles(const float* inverse_frequency, int64_t half, double position, bool inverse,
                 float amplitude, float* sine, float* cosine) {
  for (int64_t i = 0; i < half; i += kLanes64) {
    double frequency[kLanes64] = {};
    for (int64_t j = 0; j < kLanes64 && i + j < half; ++j) {
      frequency[j] = static_cast<double>(inverse_frequency[i + j]);
    }
    const F64 angle = hn::Mul(hn::LoadU(Tag64(), frequency), set64(position));
    sine_cosine(inverse ? hn::Neg(angle) : angle, sine + i, cosine + i);
  }
  if (amplitude == 1) return;
  for (int64_t i = 0; i < half; ++i) {
    sine[i] *= amplitude;
    cosine[i] *= amplitude;
  }
}

int64_t rotated_half(const RopeArgs& args) {
  return (args.rotated > 0 ? args.rotated : args.head_dim) / 2;
}

// Rows [begin, end). table: 2 * (R/2 rounded up to 16) floats.
template <typename T>
void rotate_rows(const RopeArgs& args, int64_t begin, int64_t end, float* table) {
  const int64_t half = rotated_half(args);
  float* sine = table;
  float* cosine = table + (half + 15) / 16 * 16;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t position = args.positions ? int64_t{args.positions.as<int32_t>()[r]}
                                            : args.first_position + r % args.sequence;
    fill_angles(args.inverse_frequency.as<float>(), half, static_cast<double>(position),
                args.inverse, args.amplitude, sine, cosine);
    for (int64_t h = 0; h < args.heads; ++h) {
      T* low = args.x.row<T>(r) + h * args.head_dim;
      T* high = low + half;
      for_lanes(half, [&](int64_t i, auto block, auto) TUTTI_LANES_BODY {
        const F32 s = load(sine + i, block);
        const F32 c = load(cosine + i, block);
        const F32 a = load(low + i, block);
        const F32 b = load(high + i, block);
        store(hn::NegMulAdd(b, s, hn::Mul(a, c)), low + i, block);
        store(hn::MulAdd(a, s, hn::Mul(b, c)), high + i, block);
      });
    }
  }
}

void rotate_rows_f32(const RopeArgs& args, int64_t begin, int64_t end, float* table) {
  rotate_rows<float>(args, begin, end, table);
}
void rotate_rows_bf16(const RopeArgs& args, int64_t begin, int64_t end, float* table) {
  rotate_rows<bf16>(args, begin, end, table);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(rotate_rows_f32);
HWY_EXPORT(rotate_rows_bf16);

void cpu_rope(Stream& stream, const RopeArgs& args) {
  const OpRecord what = describe(args);
  const double begin_seconds = begin_op(stream);
  const int64_t n = args.x.rows;
  const int64_t half = (args.rotated > 0 ? args.rotated : args.head_dim) / 2;
  if (n * args.heads * args.head_dim == 0) return;
  const int64_t table_floats = (half + 15) / 16 * 16 * 2;
  float* tables = static_cast<float*>(cpu_stream(stream).scratch(
      table_floats * thread_count() * static_cast<int64_t>(sizeof(float))));
  const auto rotate = args.x.dtype == DType::bf16 ? HWY_DYNAMIC_DISPATCH(rotate_rows_bf16)
                                                  : HWY_DYNAMIC_DISPATCH(rotate_rows_f32);
  parallel_ranges(n, 1, [&](int64_t begin, int64_t end, int thread) {
    rotate(args, begin, end, tables + thread * table_floats);
  });
  record(stream, what, begin_seconds);
}

}  // namespace tutti::engine
#endif
