// RMSNorm of column groups and soft-capping on the CPU (norm_ops.h states the contracts). Weight
// gradients are added row by row, group by group, by threads that split the columns, so that the
// result does not depend on their number.
#include <algorithm>
#include <cmath>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

// Rows [begin, end).
template <typename T>
void normalize_rows(const RmsNormForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.weight.count;
  const T* weight = args.weight.as<T>();
  const F32 offset = set(args.offset);
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t g = 0; g < args.groups; ++g) {
      const T* x = args.x.row<T>(r) + g * width;
      T* y = args.y.row<T>(r) + g * width;
      SlotSum squares;
      for_lanes(width, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
        const F32 v = load(x + j, block);
        squares.slots[slot] = hn::MulAdd(v, v, squares.slots[slot]);
      });
      const float rstd =
          1.0F / std::sqrt(squares.total() / static_cast<float>(width) + args.epsilon);
      if (args.rstd) args.rstd.row<float>(r)[g] = rstd;
      const F32 scale = set(rstd);
      for_lanes(width, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
        const F32 x_hat = hn::Mul(load(x + j, block), scale);
        store(hn::Mul(x_hat, hn::Add(offset, load(weight + j, block))), y + j, block);
      });
    }
  }
}

template <typename T>
void input_gradient_rows(const RmsNormBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.weight.count;
  const T* weight = args.weight.as<T>();
  const F32 offset = set(args.offset);
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t g = 0; g < args.groups; ++g) {
      const T* x = args.x.row<T>(r) + g * width;
      const T* dy = args.dy.row<T>(r) + g * width;
      T* dx = args.dx.row<T>(r) + g * width;
      const float rstd = args.rstd.row<float>(r)[g];
      SlotSum dots;
      for_lanes(width, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
        const F32 d = hn::Mul(load(dy + j, block), hn::Add(offset, load(weight + j, block)));
        dots.slots[slot] = hn::MulAdd(d, load(x + j, block), dots.slots[slot]);
      });
      const F32 slope = set(dots.total() / static_cast<float>(width) * rstd * rstd);
      const F32 scale = set(rstd);
      for_lanes(width, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
        const F32 d = hn::Mul(load(dy + j, block), hn::Add(offset, load(weight + j, block)));
        store(hn::Mul(hn::NegMulAdd(load(x + j, block), slope, d), scale), dx + j, block);
      });
    }
  }
}

// Columns [begin, end) of every group.
template <typename T>
void weight_gradient_columns(const RmsNormBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.weight.count;
  float* sum = args.d_weight.as<float>() + begin;
  if (args.beta == 0) std::fill_n(sum, end - begin, 0.0F);
  for (int64_t r = 0; r < args.dy.rows; ++r) {
    for (int64_t g = 0; g < args.groups; ++g) {
      const T* x = args.x.row<T>(r) + g * width + begin;
      const T* dy = args.dy.row<T>(r) + g * width + begin;
      const F32 scale = set(args.rstd.row<float>(r)[g]);
      for_lanes(end - begin, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
        const F32 x_hat = hn::Mul(load(x + j, block), scale);
        store(hn::MulAdd(load(dy + j, block), x_hat, load(sum + j, block)), sum + j, block);
      });
    }
  }
}

template <typename T>
void cap_rows(const SoftcapArgs& args, int64_t begin, int64_t end) {
  const F32 cap = set(args.cap);
  const F32 inverse = set(1 / args.cap);
  for (int64_t r = begin; r < end; ++r) {
    T* x = args.x.row<T>(r);
    for_lanes(args.x.cols, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      store(hn::Mul(tanh(hn::Mul(load(x + j, block), inverse)), cap), x + j, block);
    });
  }
}

void normalize_f32(const RmsNormForwardArgs& a, int64_t begin, int64_t end) {
  normalize_rows<float>(a, begin, end);
}
void normalize_bf16(const RmsNormForwardArgs& a, int64_t begin, int64_t end) {
  normalize_rows<bf16>(a, begin, end);
}
void input_gradient_f32(const RmsNormBackwardArgs& a, int64_t begin, int64_t end) {
  input_gradient_rows<float>(a, begin, end);
}
void input_gradient_bf16(const RmsNormBackwardArgs& a, int64_t begin, int64_t end) {
  input_gradient_rows<bf16>(a, begin, end);
}
void weight_gradient_f32(const RmsNormBackwardArgs& a, int64_t begin, int64_t end) {
  weight_gradient_columns<float>(a, begin, end);
}
void weight_gradient_bf16(const RmsNormBackwardArgs& a, int64_t begin, int64_t end) {
  weight_gradient_columns<bf16>(a, begin, end);
}
void cap_f32(const SoftcapArgs& a, int64_t begin, int64_t end) { cap_rows<float>(a, begin, end); }
void cap_bf16(const SoftcapArgs& a, int64_t begin, int64_t end) { cap_rows<bf16>(a, begin, end); }

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

HWY_EXPORT(normalize_f32);
HWY_EXPORT(normalize_bf16);
HWY_EXPORT(input_gradient_f32);
HWY_EXPORT(input_gradient_bf16);
HWY_EXPORT(weight_gradient_f32);
HWY_EXPORT(weight_gradient_bf16);
HWY_EXPORT(cap_f32);
HWY_EXPORT(cap_bf16);

// Grain of parallel_ranges in rows: enough elements to be worth a thread.
int64_t row_grain(int64_t columns) {
  return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, columns));
}

}  // namespace

void cpu_rms_norm_forward(Stream& stream, const RmsNormForwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const auto normalize = args.x.dtype == DType::bf16 ? HWY_DYNAMIC_DISPATCH(normalize_bf16)
                                                     : HWY_DYNAMIC_DISPATCH(normalize_f32);
  if (args.x.cols > 0) {
    parallel_ranges(args.x.rows, row_grain(args.x.cols),
                    [&](int64_t first, int64_t last, int) { normalize(args, first, last); });
  }
  record(stream, what, begin);
}

void cpu_rms_norm_backward(Stream& stream, const RmsNormBackwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const bool narrow = args.dy.dtype == DType::bf16;
  // Before dx, which may overwrite dy.
  if (args.d_weight) {
    const auto add = narrow ? HWY_DYNAMIC_DISPATCH(weight_gradient_bf16)
                            : HWY_DYNAMIC_DISPATCH(weight_gradient_f32);
    parallel_ranges(args.weight.count, 64,
                    [&](int64_t first, int64_t last, int) { add(args, first, last); });
  }
  const auto back =
      narrow ? HWY_DYNAMIC_DISPATCH(input_gradient_bf16) : HWY_DYNAMIC_DISPATCH(input_gradient_f32);
  if (args.dy.cols > 0) {
    parallel_ranges(args.dy.rows, row_grain(args.dy.cols),
                    [&](int64_t first, int64_t last, int) { back(args, first, last); });
  }
  record(stream, what, begin);
}

void cpu_softcap(Stream& stream, const SoftcapArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const auto cap =
      args.x.dtype == DType::bf16 ? HWY_DYNAMIC_DISPATCH(cap_bf16) : HWY_DYNAMIC_DISPATCH(cap_f32);
  if (args.x.cols > 0) {
    parallel_ranges(args.x.rows, row_grain(args.x.cols),
                    [&](int64_t first, int64_t last, int) { cap(args, first, last); });
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
