// Scatters rows to experts and gathers them back, in one pass over the tokens (moe_ops.h states the
// contract). A copy belongs to one token, so threads that split the tokens never share a row.
#include <cstring>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/permute.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void scale_row(const T* x, float weight, T* out, int64_t count) {
  for_lanes(count, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
    store(hn::Mul(load(x + j, block), set(weight)), out + j, block);
  });
}

template <typename T>
HWY_INLINE float dot_rows(const T* x, const T* y, int64_t count) {
  SlotSum sums;
  for_lanes(count, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
    sums.slots[slot] = hn::MulAdd(load(x + j, block), load(y + j, block), sums.slots[slot]);
  });
  return sums.total();
}

template <typename T>
void permute_rows(const PermuteArgs& args, int64_t begin, int64_t end) {
  const int64_t h = args.x.cols;
  for (int64_t n = begin; n < end; ++n) {
    const T* x = args.x.row<T>(n);
    const int32_t* position = args.positions.row<int32_t>(n);
    for (int64_t i = 0; i < args.positions.cols; ++i) {
      float dot = 0;
      if (position[i] >= 0) {
        T* out = args.out.row<T>(position[i]);
        if (args.weights) {
          scale_row(x, args.weights.row<float>(n)[i], out, h);
        } else {
          std::memcpy(out, x, static_cast<size_t>(h) * sizeof(T));
        }
        if (args.partner) dot = dot_rows(x, args.partner.row<T>(position[i]), h);
      }
      if (args.partner) args.dots.row<float>(n)[i] = dot;
    }
  }
}

// One block of columns at a time, to keep the sum in a register.
template <typename T>
void unpermute_rows(const UnpermuteArgs& args, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const int32_t* position = args.positions.row<int32_t>(n);
    const float* weights = args.weights ? args.weights.row<float>(n) : nullptr;
    T* out = args.out.row<T>(n);
    for_lanes(args.out.cols, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      F32 sum = args.accumulate ? load(out + j, block) : zero();
      for (int64_t i = 0; i < args.positions.cols; ++i) {
        if (position[i] < 0) continue;
        const F32 x = load(args.rows.row<T>(position[i]) + j, block);
        sum = weights == nullptr ? hn::Add(sum, x) : hn::MulAdd(x, set(weights[i]), sum);
      }
      store(sum, out + j, block);
    });
  }
}

void permute_f32(const PermuteArgs& a, int64_t begin, int64_t end) {
  permute_rows<float>(a, begin, end);
}
void permute_bf16(const PermuteArgs& a, int64_t begin, int64_t end) {
  permute_rows<bf16>(a, begin, end);
}
void unpermute_f32(const UnpermuteArgs& a, int64_t begin, int64_t end) {
  unpermute_rows<float>(a, begin, end);
}
void unpermute_bf16(const UnpermuteArgs& a, int64_t begin, int64_t end) {
  unpermute_rows<bf16>(a, begin, end);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

HWY_EXPORT(permute_f32);
HWY_EXPORT(permute_bf16);
HWY_EXPORT(unpermute_f32);
HWY_EXPORT(unpermute_bf16);

int64_t row_grain(int64_t columns) {
  return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, columns));
}

void check_positions(const char* op, const Matrix& positions, const Matrix& copies) {
  for (int64_t n = 0; n < positions.rows; ++n) {
    for (int64_t i = 0; i < positions.cols; ++i) {
      const int32_t position = positions.row<int32_t>(n)[i];
      TUTTI_CHECK(position < copies.rows, "{}: position {} of {} rows", op, position, copies.rows);
    }
  }
}

}  // namespace

void cpu_permute(Stream& stream, const PermuteArgs& args) {
  const OpRecord what = describe(args);
  check_positions(what.op, args.positions, args.out);
  const double begin = begin_op(stream);
  parallel_ranges(args.x.rows, row_grain(args.x.cols), [&](int64_t first, int64_t last, int) {
    if (args.x.dtype == DType::bf16) {
      HWY_DYNAMIC_DISPATCH(permute_bf16)(args, first, last);
    } else {
      HWY_DYNAMIC_DISPATCH(permute_f32)(args, first, last);
    }
  });
  record(stream, what, begin);
}

void cpu_unpermute(Stream& stream, const UnpermuteArgs& args) {
  const OpRecord what = describe(args);
  check_positions(what.op, args.positions, args.rows);
  const double begin = begin_op(stream);
  parallel_ranges(args.out.rows, row_grain(args.out.cols), [&](int64_t first, int64_t last, int) {
    if (args.out.dtype == DType::bf16) {
      HWY_DYNAMIC_DISPATCH(unpermute_bf16)(args, first, last);
    } else {
      HWY_DYNAMIC_DISPATCH(unpermute_f32)(args, first, last);
    }
  });
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
