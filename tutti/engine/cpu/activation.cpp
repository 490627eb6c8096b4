// GELU, SwiGLU, GeGLU and clamped SwiGLU on the CPU, one pass over the elements (ops.h states the
// contract).
//   0.5 (1 + tanh u) = s(2u) with the logistic function s, so gelu_tanh(x) = x s(z) with
//   z = 2 sqrt(2/pi) (x + 0.044715 x^3):     gelu'(x) = s + x s (1 - s) z'
//   swiglu(g, u) = g s(g) u:                 d/dg = u s (1 + g (1 - s)),  d/du = g s
//   geglu(g, u) = gelu_tanh(g) u:            d/dg = u gelu'(g),           d/du = gelu_tanh(g)
//   clamped_swiglu(g, u) = g s(kg) (u + 1):  d/dg = (u + 1) s (1 + kg (1 - s)), d/du = g s,
//   and 0 where g or u is clamped
#include "tutti/engine/cpu/amax.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/activation.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

constexpr float kGeluLinear = 1.5957691216F;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.07135481283F;  // 2 sqrt(2/pi) * 0.044715
constexpr float kGeluSaturates = 16.0F;       // s(z) is 0 or 1 in f32 for |x| >= 10.3
constexpr float kClampedSlope = 1.702F;       // of clamped_swiglu
constexpr float kClampedLimit = 7.0F;

template <typename T, typename Block>
HWY_INLINE F32 load_biased(const T* x, const T* bias, Block block) {
  return bias == nullptr ? load(x, block) : hn::Add(load(x, block), load(bias, block));
}

template <typename T>
void gelu_forward_rows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t f = args.y.cols;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    T* y = args.y.row<T>(r);
    for_lanes(f, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 v = load_biased(x + j, bias == nullptr ? nullptr : bias + j, block);
      const F32 cubic = hn::MulAdd(hn::Mul(v, v), set(kGeluCubic), set(kGeluLinear));
      store(hn::Mul(v, sigmoid(hn::Mul(v, cubic))), y + j, block);
    });
  }
}

template <typename T>
void gelu_backward_rows(const ActivationBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t f = args.dy.cols;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    const T* dy = args.dy.row<T>(r);
    T* dx = args.dx.row<T>(r);
    for_lanes(f, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 v = clamp(load_biased(x + j, bias == nullptr ? nullptr : bias + j, block),
                          -kGeluSaturates, kGeluSaturates);
      const F32 square = hn::Mul(v, v);
      const F32 z = hn::Mul(v, hn::MulAdd(square, set(kGeluCubic), set(kGeluLinear)));
      const F32 dz = hn::MulAdd(square, set(3 * kGeluCubic), set(kGeluLinear));
      const F32 s = sigmoid(z);
      const F32 slope = hn::Mul(s, hn::Sub(set(1.0F), s));
      const F32 derivative = hn::MulAdd(hn::Mul(v, slope), dz, s);
      store(hn::Mul(load(dy + j, block), derivative), dx + j, block);
    });
  }
}

template <typename T>
void swiglu_forward_rows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t f = args.y.cols;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    T* y = args.y.row<T>(r);
    for_lanes(f, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 gate = load_biased(x + j, bias == nullptr ? nullptr : bias + j, block);
      const F32 up = load_biased(x + f + j, bias == nullptr ? nullptr : bias + f + j, block);
      store(hn::Mul(hn::Mul(gate, sigmoid(gate)), up), y + j, block);
    });
  }
}

template <typename T>
void swiglu_backward_rows(const ActivationBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t f = args.dy.cols;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    const T* dy = args.dy.row<T>(r);
    T* dx = args.dx.row<T>(r);
    for_lanes(f, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 gate = load_biased(x + j, bias == nullptr ? nullptr : bias + j, block);
      const F32 up = load_biased(x + f + j, bias == nullptr ? nullptr : bias + f + j, block);
      const F32 d = load(dy + j, block);
      const F32 s = sigmoid(gate);
      const F32 silu = hn::Mul(gate, s);
      const F32 d_silu = hn::MulAdd(silu, hn::Sub(set(1.0F), s), s);
      store(hn::Mul(hn::Mul(d, up), d_silu), dx + j, block);
      store(hn::Mul(d, silu), dx + f + j, block);
    });
  }
}

template <typename T>
void geglu_forward_rows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t f = args.y.cols;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    T* y = args.y.row<T>(r);
    for_lanes(f, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 gate = load_biased(x + j, bias == nullptr ? nullptr : bias + j, block);
      const F32 up = load_biased(x + f + j, bias == nullptr ? nullptr : bias + f + j, block);
      const F32 cubic = hn::MulAdd(hn::Mul(gate, gate), set(kGeluCubic), set(kGeluLinear));
      store(hn::Mul(hn::Mul(gate, sigmoid(hn::Mul(gate, cubic))), up), y + j, block);
    });
  }
}

template <typename T>
void geglu_backward_rows(const ActivationBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t f = args.dy.cols;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    const T* dy = args.dy.row<T>(r);
    T* dx = args.dx.row<T>(r);
    for_lanes(f, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 gate = load_biased(x + j, bias == nullptr ? nullptr : bias + j, block);
      const F32 up = load_biased(x + f + j, bias == nullptr ? nullptr : bias + f + j, block);
      const F32 d = load(dy + j, block);
      const F32 v = clamp(gate, -kGeluSaturates, kGeluSaturates);
      const F32 square = hn::Mul(v, v);
      const F32 s = sigmoid(hn::Mul(v, hn::MulAdd(square, set(kGeluCubic), set(kGeluLinear))));
      const F32 dz = hn::MulAdd(square, set(3 * kGeluCubic), set(kGeluLinear));
      const F32 slope = hn::Mul(s, hn::Sub(set(1.0F), s));
      const F32 derivative = hn::MulAdd(hn::Mul(v, slope), dz, s);
      store(hn::Mul(hn::Mul(d, up), derivative), dx + j, block);
      store(hn::Mul(d, hn::Mul(gate, s)), dx + f + j, block);
    });
  }
}

// gate clamped from above; NaN stays NaN.
HWY_INLINE F32 below_limit(F32 v) {
  return hn::IfThenElse(hn::Gt(v, set(kClampedLimit)), set(kClampedLimit), v);
}

template <typename T>
void clamped_forward_rows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t f = args.y.cols;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    T* y = args.y.row<T>(r);
    for_lanes(f, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 gate = below_limit(load_biased(x + j, bias == nullptr ? nullptr : bias + j, block));
      const F32 up = clamp(load_biased(x + f + j, bias == nullptr ? nullptr : bias + f + j, block),
                           -kClampedLimit, kClampedLimit);
      const F32 silu = hn::Mul(gate, sigmoid(hn::Mul(gate, set(kClampedSlope))));
      store(hn::Mul(hn::Add(up, set(1.0F)), silu), y + j, block);
    });
  }
}

template <typename T>
void clamped_backward_rows(const ActivationBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t f = args.dy.cols;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    const T* dy = args.dy.row<T>(r);
    T* dx = args.dx.row<T>(r);
    for_lanes(f, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 given = load_biased(x + j, bias == nullptr ? nullptr : bias + j, block);
      const F32 wide = load_biased(x + f + j, bias == nullptr ? nullptr : bias + f + j, block);
      const F32 gate = below_limit(given);
      const F32 up = hn::Add(clamp(wide, -kClampedLimit, kClampedLimit), set(1.0F));
      const F32 d = load(dy + j, block);
      const F32 turned = hn::Mul(gate, set(kClampedSlope));
      const F32 s = sigmoid(turned);
      const F32 slope = hn::MulAdd(hn::Mul(turned, s), hn::Sub(set(1.0F), s), s);
      const F32 d_gate = hn::Mul(hn::Mul(d, up), slope);
      const F32 d_up = hn::Mul(d, hn::Mul(gate, s));
      const auto gate_hidden = hn::Gt(given, set(kClampedLimit));
      const auto up_hidden = hn::Gt(hn::Abs(wide), set(kClampedLimit));
      store(hn::IfThenElse(gate_hidden, zero(), d_gate), dx + j, block);
      store(hn::IfThenElse(up_hidden, zero(), d_up), dx + f + j, block);
    });
  }
}

template <typename T>
void forward_rows(const ActivationForwardArgs& args, int64_t begin, int64_t end) {
  if (args.kind == Activation::gelu) {
    gelu_forward_rows<T>(args, begin, end);
  } else if (args.kind == Activation::geglu) {
    geglu_forward_rows<T>(args, begin, end);
  } else if (args.kind == Activation::clamped_swiglu) {
    clamped_forward_rows<T>(args, begin, end);
  } else {
    swiglu_forward_rows<T>(args, begin, end);
  }
}

template <typename T>
void backward_rows(const ActivationBackwardArgs& args, int64_t begin, int64_t end) {
  if (args.kind == Activation::gelu) {
    gelu_backward_rows<T>(args, begin, end);
  } else if (args.kind == Activation::geglu) {
    geglu_backward_rows<T>(args, begin, end);
  } else if (args.kind == Activation::clamped_swiglu) {
    clamped_backward_rows<T>(args, begin, end);
  } else {
    swiglu_backward_rows<T>(args, begin, end);
  }
}

void activation_forward_f32(const ActivationForwardArgs& a, int64_t begin, int64_t end) {
  forward_rows<float>(a, begin, end);
}
void activation_forward_bf16(const ActivationForwardArgs& a, int64_t begin, int64_t end) {
  forward_rows<bf16>(a, begin, end);
}
void activation_backward_f32(const ActivationBackwardArgs& a, int64_t begin, int64_t end) {
  backward_rows<float>(a, begin, end);
}
void activation_backward_bf16(const ActivationBackwardArgs& a, int64_t begin, int64_t end) {
  backward_rows<bf16>(a, begin, end);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

HWY_EXPORT(activation_forward_f32);
HWY_EXPORT(activation_forward_bf16);
HWY_EXPORT(activation_backward_f32);
HWY_EXPORT(activation_backward_bf16);

int64_t row_grain(int64_t columns) {
  return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, columns));
}

}  // namespace

void cpu_activation_forward(Stream& stream, const ActivationForwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const int64_t n = args.y.rows;
  const int64_t f = args.y.cols;
  if (f > 0) {
    parallel_ranges(n, row_grain(f), [&](int64_t first, int64_t last, int) {
      if (args.y.dtype == DType::bf16) {
        HWY_DYNAMIC_DISPATCH(activation_forward_bf16)(args, first, last);
      } else {
        HWY_DYNAMIC_DISPATCH(activation_forward_f32)(args, first, last);
      }
    });
  }
  store_magnitude(stream, args.y, args.amax);
  record(stream, what, begin);
}

void cpu_activation_backward(Stream& stream, const ActivationBackwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const int64_t n = args.dy.rows;
  const int64_t f = args.dy.cols;
  if (f > 0) {
    parallel_ranges(n, row_grain(f), [&](int64_t first, int64_t last, int) {
      if (args.dy.dtype == DType::bf16) {
        HWY_DYNAMIC_DISPATCH(activation_backward_bf16)(args, first, last);
      } else {
        HWY_DYNAMIC_DISPATCH(activation_backward_f32)(args, first, last);
      }
    });
  }
  store_magnitude(stream, args.dx, args.amax);
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
