// LayerNorm and RMSNorm on the CPU, each row in passes that hit the cache (ops.h states the
// contract). With x_hat = (x - mean) * rstd, g = dy * weight, E = mean over the row, weight
// including its offset:
//   forward          y = x_hat * weight + bias
//   backward input   dx = rstd * (g - E[g] - x_hat * E[g * x_hat]); RMSNorm has no E[g] and mean
//   backward weight  d_weight = sum over rows of dy * x_hat, d_bias = sum over rows of dy
#include <cmath>

#include "tutti/engine/cpu/amax.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/norm.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

// Rows [begin, end).
template <typename T>
void forward_rows(const NormForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t h = args.y.cols;
  const bool layer = args.kind == NormKind::layer;
  const bool add = static_cast<bool>(args.branch);
  const T* weight = args.weight.as<T>();
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  const F32 offset = set(args.offset);
  for (int64_t r = begin; r < end; ++r) {
    const float* x = args.residual_in.row<float>(r);
    SlotSum first;  // of x (layer) or x^2 (rms)
    if (add) {
      const T* branch = args.branch.row<T>(r);
      float* out = args.residual_out.row<float>(r);
      for_lanes(h, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
        const F32 v = hn::Add(load(x + j, block), load(branch + j, block));
        store(v, out + j, block);
        F32& s = first.slots[slot];
        s = layer ? hn::Add(s, v) : hn::MulAdd(v, v, s);
      });
      x = out;
    } else {
      for_lanes(h, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
        const F32 v = load(x + j, block);
        F32& s = first.slots[slot];
        s = layer ? hn::Add(s, v) : hn::MulAdd(v, v, s);
      });
    }
    float mean = 0;
    float variance = first.total() / static_cast<float>(h);
    if (layer) {
      mean = variance;
      SlotSum squares;
      const F32 center = set(mean);
      for_lanes(h, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
        F32 v = hn::Sub(load(x + j, block), center);
        if constexpr (std::is_same_v<decltype(block), PartBlock>) {
          v = hn::IfThenElseZero(hn::FirstN(Tag(), static_cast<size_t>(block.count)), v);
        }
        squares.slots[slot] = hn::MulAdd(v, v, squares.slots[slot]);
      });
      variance = squares.total() / static_cast<float>(h);
    }
    const float rstd = 1.0F / std::sqrt(variance + args.epsilon);
    if (args.mean && layer) args.mean.as<float>()[r] = mean;
    if (args.rstd) args.rstd.as<float>()[r] = rstd;

    T* y = args.y.row<T>(r);
    const F32 center = set(mean);
    const F32 scale = set(rstd);
    if (bias != nullptr) {
      for_lanes(h, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
        const F32 x_hat = hn::Mul(hn::Sub(load(x + j, block), center), scale);
        const F32 w = hn::Add(offset, load(weight + j, block));
        store(hn::MulAdd(x_hat, w, load(bias + j, block)), y + j, block);
      });
    } else {
      for_lanes(h, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
        const F32 x_hat = hn::Mul(hn::Sub(load(x + j, block), center), scale);
        store(hn::Mul(x_hat, hn::Add(offset, load(weight + j, block))), y + j, block);
      });
    }
  }
}

// Rows [begin, end).
template <typename T>
void backward_input_rows(const NormBackwardInputArgs& args, int64_t begin, int64_t end) {
  const int64_t h = args.dy.cols;
  const bool layer = args.kind == NormKind::layer;
  const T* weight = args.weight.as<T>();
  const F32 offset = set(args.offset);
  for (int64_t r = begin; r < end; ++r) {
    const T* dy = args.dy.row<T>(r);
    const float* x = args.residual.row<float>(r);
    const float rstd = args.rstd.as<float>()[r];
    const F32 center = set(layer ? args.mean.as<float>()[r] : 0.0F);
    SlotSum sum_g;
    SlotSum sum_gx;
    for_lanes(h, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
      const F32 g = hn::Mul(load(dy + j, block), hn::Add(offset, load(weight + j, block)));
      const F32 v = hn::Sub(load(x + j, block), center);
      sum_g.slots[slot] = hn::Add(sum_g.slots[slot], g);
      sum_gx.slots[slot] = hn::MulAdd(g, v, sum_gx.slots[slot]);
    });
    const float inverse_h = 1.0F / static_cast<float>(h);
    const F32 mean_g = set(layer ? sum_g.total() * inverse_h : 0.0F);
    // x_hat * E[g * x_hat] = (x - mean) * (rstd^2 * E[g * (x - mean)])
    const F32 slope = set(sum_gx.total() * inverse_h * rstd * rstd);
    const F32 scale = set(rstd);
    float* d_residual = args.d_residual.row<float>(r);
    T* d_branch = args.d_branch ? args.d_branch.row<T>(r) : nullptr;
    const bool accumulate = args.accumulate;
    for_lanes(h, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 g = hn::Mul(load(dy + j, block), hn::Add(offset, load(weight + j, block)));
      const F32 v = hn::Sub(load(x + j, block), center);
      const F32 inner = hn::NegMulAdd(v, slope, hn::Sub(g, mean_g));
      const F32 dx = accumulate ? hn::MulAdd(inner, scale, load(d_residual + j, block))
                                : hn::Mul(inner, scale);
      store(dx, d_residual + j, block);
      if (d_branch != nullptr) store(dx, d_branch + j, block);
    });
  }
}

// Adds `rows` rows (1 or more, a compile-time constant) from row r to columns [begin, end) of the
// sums. With several rows at once the sums are read and written once for all of them, and each row
// is still read along its cache lines.
template <int rows, typename T>
HWY_INLINE void backward_weight_tile(const NormBackwardWeightArgs& args, int64_t r, bool overwrite,
                                     int64_t begin, int64_t end) {
  const T* dy[rows];
  const float* x[rows];
  F32 center[rows];
  F32 scale[rows];
  for (int i = 0; i < rows; ++i) {
    dy[i] = args.dy.row<T>(r + i) + begin;
    x[i] = args.residual.row<float>(r + i) + begin;
    center[i] = set(args.kind == NormKind::layer ? args.mean.as<float>()[r + i] : 0.0F);
    scale[i] = set(args.rstd.as<float>()[r + i]);
  }
  float* d_weight = args.d_weight.as<float>() + begin;
  float* d_bias = args.d_bias ? args.d_bias.as<float>() + begin : nullptr;
  for_lanes(end - begin, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
    F32 sum_w = zero();
    F32 sum_b = zero();
    for (int i = 0; i < rows; ++i) {
      const F32 g = load(dy[i] + j, block);
      const F32 x_hat = hn::Mul(hn::Sub(load(x[i] + j, block), center[i]), scale[i]);
      sum_w = hn::MulAdd(g, x_hat, sum_w);
      sum_b = hn::Add(sum_b, g);
    }
    if (!overwrite) sum_w = hn::Add(sum_w, load(d_weight + j, block));
    store(sum_w, d_weight + j, block);
    if (d_bias != nullptr) {
      if (!overwrite) sum_b = hn::Add(sum_b, load(d_bias + j, block));
      store(sum_b, d_bias + j, block);
    }
  });
}

// Columns [begin, end), all rows.
template <typename T>
void backward_weight_columns(const NormBackwardWeightArgs& args, int64_t begin, int64_t end) {
  constexpr int kTileRows = 4;
  const int64_t n = args.dy.rows;
  bool overwrite = args.beta == 0;
  int64_t r = 0;
  for (; r + kTileRows <= n; r += kTileRows) {
    backward_weight_tile<kTileRows, T>(args, r, overwrite, begin, end);
    overwrite = false;
  }
  for (; r < n; ++r) {
    backward_weight_tile<1, T>(args, r, overwrite, begin, end);
    overwrite = false;
  }
}

void forward_f32(const NormForwardArgs& a, int64_t begin, int64_t end) {
  forward_rows<float>(a, begin, end);
}
void forward_bf16(const NormForwardArgs& a, int64_t begin, int64_t end) {
  forward_rows<bf16>(a, begin, end);
}
void backward_input_f32(const NormBackwardInputArgs& a, int64_t begin, int64_t end) {
  backward_input_rows<float>(a, begin, end);
}
void backward_input_bf16(const NormBackwardInputArgs& a, int64_t begin, int64_t end) {
  backward_input_rows<bf16>(a, begin, end);
}
void backward_weight_f32(const NormBackwardWeightArgs& a, int64_t begin, int64_t end) {
  backward_weight_columns<float>(a, begin, end);
}
void backward_weight_bf16(const NormBackwardWeightArgs& a, int64_t begin, int64_t end) {
  backward_weight_columns<bf16>(a, begin, end);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_bf16);
HWY_EXPORT(backward_input_f32);
HWY_EXPORT(backward_input_bf16);
HWY_EXPORT(backward_weight_f32);
HWY_EXPORT(backward_weight_bf16);

void backward_weight(const NormBackwardWeightArgs& args) {
  const int64_t h = args.dy.cols;
  if (args.dy.rows == 0 || h == 0) return;
  // Each thread owns whole cache lines of the sums.
  parallel_ranges(h, 64, [&](int64_t first, int64_t last, int) {
    if (args.dy.dtype == DType::bf16) {
      HWY_DYNAMIC_DISPATCH(backward_weight_bf16)(args, first, last);
    } else {
      HWY_DYNAMIC_DISPATCH(backward_weight_f32)(args, first, last);
    }
  });
}

// Grain of parallel_ranges in rows: enough elements to be worth a thread.
int64_t row_grain(int64_t columns) {
  return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, columns));
}

}  // namespace

void cpu_norm_forward(Stream& stream, const NormForwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const int64_t n = args.y.rows;
  const int64_t h = args.y.cols;
  if (n > 0 && h > 0) {
    parallel_ranges(n, row_grain(h), [&](int64_t first, int64_t last, int) {
      if (args.y.dtype == DType::bf16) {
        HWY_DYNAMIC_DISPATCH(forward_bf16)(args, first, last);
      } else {
        HWY_DYNAMIC_DISPATCH(forward_f32)(args, first, last);
      }
    });
  }
  store_magnitude(stream, args.y, args.amax);
  record(stream, what, begin);
}

void cpu_norm_backward_input(Stream& stream, const NormBackwardInputArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  if (args.d_weight) backward_weight(weight_args(args));
  const int64_t n = args.dy.rows;
  const int64_t h = args.dy.cols;
  if (n > 0 && h > 0) {
    parallel_ranges(n, row_grain(h), [&](int64_t first, int64_t last, int) {
      if (args.dy.dtype == DType::bf16) {
        HWY_DYNAMIC_DISPATCH(backward_input_bf16)(args, first, last);
      } else {
        HWY_DYNAMIC_DISPATCH(backward_input_f32)(args, first, last);
      }
    });
  }
  store_magnitude(stream, args.d_branch, args.amax);
  record(stream, what, begin);
}

void cpu_norm_backward_weight(Stream& stream, const NormBackwardWeightArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  backward_weight(args);
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
