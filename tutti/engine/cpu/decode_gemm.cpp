// Products with weights for few rows (decode_ops.h), at the speed of reading the weights from
// memory. Rows of A are f32 in the cache; a tile is a few of them times a few rows of weights,
// which are converted to f32 in registers. An element of C is the sum of one vector of lanes that
// accumulates groups of 32 columns in the same order in every tile, so that the shape of a tile
// does not change the bits.
#include <algorithm>
#include <cstring>

#include "tutti/engine/cpu/convert.h"
#include "tutti/engine/cpu/decode_gemm_bf16.h"
#include "tutti/engine/cpu/gemm.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#ifndef TUTTI_ENGINE_CPU_DECODE_GEMM_ONCE_
#define TUTTI_ENGINE_CPU_DECODE_GEMM_ONCE_  // NOLINT(readability-identifier-naming)
namespace tutti::engine {
namespace {

// Input of every target: A as f32, zero-padded to complete groups of columns.
struct FewRows {
  const float* a;
  int64_t stride;  // of a row of A
  const DecodeGemmArgs* args;
};

}  // namespace
}  // namespace tutti::engine
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/decode_gemm.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

inline constexpr int kParts = static_cast<int>(kPackGroup / kLanes);  // vectors of a group

// A row of weights: part(g, v) is the v-th vector of group g. (No constructors: implicit ones would
// be compiled for the baseline.)
template <typename T>
struct StoredRow {
  const T* data;
  HWY_INLINE void bind(const DecodeGemmArgs& args, int64_t row) { data = args.weight.row<T>(row); }
  HWY_INLINE F32 part(int64_t group, int v) const {
    return load(data + group * kPackGroup + v * kLanes);
  }
  // The remaining columns of an incomplete last group, zero-padded, as group 0.
  HWY_INLINE StoredRow tail(int64_t columns, T* room) const {
    const int64_t whole = columns / kPackGroup * kPackGroup;
    std::memset(room, 0, kPackGroup * sizeof(T));
    std::memcpy(room, data + whole, static_cast<size_t>(columns - whole) * sizeof(T));
    return {room};
  }
  using Room = T[kPackGroup];
};

struct PackedRow {
  const uint8_t* codes;
  const bf16* scales;
  HWY_INLINE void bind(const DecodeGemmArgs& args, int64_t row) {
    const PackedLayout layout = args.packed.layout();
    const auto* data = static_cast<const uint8_t*>(args.packed.data);
    codes = data + row * layout.row_bytes;
    scales = reinterpret_cast<const bf16*>(data + layout.scales_offset) + row * layout.groups;
  }
};

struct Int8Row : PackedRow {
  HWY_INLINE F32 part(int64_t group, int v) const {
    const hn::Rebind<int8_t, Tag> d8;
    const hn::Rebind<int32_t, Tag> d32;
    const auto* from = reinterpret_cast<const int8_t*>(codes) + group * kPackGroup + v * kLanes;
    const F32 code = hn::ConvertTo(Tag(), hn::PromoteTo(d32, hn::LoadU(d8, from)));
    return hn::Mul(code, set(to_f32(scales[group])));
  }
};

struct Int4Row : PackedRow {
  HWY_INLINE F32 part(int64_t group, int v) const {
    const hn::Rebind<uint16_t, Tag> d16;
    const hn::Rebind<uint32_t, Tag> d32;
    const hn::Rebind<int32_t, Tag> signed32;
    const auto* words = reinterpret_cast<const uint16_t*>(codes) + group / 4 * kPackGroup;
    const auto four = hn::PromoteTo(d32, hn::LoadU(d16, words + v * kLanes));
    const auto code =
        hn::And(hn::ShiftRightSame(four, static_cast<int>(group % 4 * 4)), hn::Set(d32, 15));
    const F32 scale = set(to_f32(scales[group]));
    return hn::MulAdd(hn::ConvertTo(Tag(), hn::BitCast(signed32, code)), scale,
                      hn::Mul(scale, set(-8)));
  }
};

// C += A B^T for m rows of A and n of B, over groups [0, groups).
template <int m, int n, typename Row>
HWY_INLINE void add_groups(const float* a, int64_t stride, const Row* rows, int64_t groups,
                           F32 (&sums)[m][n]) {
  for (int64_t group = 0; group < groups; ++group) {
    for (int v = 0; v < kParts; ++v) {
      F32 b[n];
      for (int j = 0; j < n; ++j) b[j] = rows[j].part(group, v);
      for (int i = 0; i < m; ++i) {
        const F32 x = load(a + i * stride + group * kPackGroup + v * kLanes);
        for (int j = 0; j < n; ++j) sums[i][j] = hn::MulAdd(x, b[j], sums[i][j]);
      }
    }
  }
}

template <typename C>
HWY_INLINE void put(const DecodeGemmArgs& args, int64_t i, int64_t j, float sum) {
  sum *= args.alpha;
  if (args.bias) {
    sum +=
        args.bias.dtype == DType::bf16 ? to_f32(args.bias.as<bf16>()[j]) : args.bias.as<float>()[j];
  }
  if constexpr (std::is_same_v<C, bf16>) {
    args.c.row<bf16>(i)[j] = to_bf16(sum);
  } else {
    args.c.row<float>(i)[j] = sum;
  }
}

template <typename T>
struct IsStored : std::false_type {};
template <typename T>
struct IsStored<StoredRow<T>> : std::true_type {};

template <int m, int n, typename Row>
HWY_INLINE void tile(const FewRows& few, int64_t i, int64_t j) {
  const DecodeGemmArgs& args = *few.args;
  const int64_t columns = args.a.cols;
  const float* a = few.a + i * few.stride;
  F32 sums[m][n];
  for (auto& row : sums) {
    for (F32& sum : row) sum = zero();
  }
  Row rows[n];
  for (int r = 0; r < n; ++r) rows[r].bind(args, j + r);
  if constexpr (IsStored<Row>::value) {
    const int64_t whole = columns / kPackGroup;
    add_groups<m, n>(a, few.stride, rows, whole, sums);
    if (whole * kPackGroup < columns) {
      typename Row::Room room[n];
      for (int r = 0; r < n; ++r) rows[r] = rows[r].tail(columns, room[r]);
      add_groups<m, n>(a + whole * kPackGroup, few.stride, rows, 1, sums);
    }
  } else {
    add_groups<m, n>(a, few.stride, rows, few.stride / kPackGroup, sums);
  }
  for (int r = 0; r < m; ++r) {
    for (int c = 0; c < n; ++c) {
      if (args.c.dtype == DType::bf16) {
        put<bf16>(args, i + r, j + c, sum(sums[r][c]));
      } else {
        put<float>(args, i + r, j + c, sum(sums[r][c]));
      }
    }
  }
}

// All rows of A times n rows of weights from row j on.
template <int n, typename Row>
HWY_INLINE void all_rows(const FewRows& few, int64_t j) {
  const int64_t m = few.args->a.rows;
  int64_t i = 0;
  for (; i + 6 <= m; i += 6) tile<6, n, Row>(few, i, j);
  for (; i + 4 <= m; i += 4) tile<4, n, Row>(few, i, j);
  for (; i + 2 <= m; i += 2) tile<2, n, Row>(few, i, j);
  if (i < m) tile<1, n, Row>(few, i, j);
}

template <typename Row>
HWY_INLINE void weight_rows(const FewRows& few, int64_t begin, int64_t end) {
  int64_t j = begin;
  if (few.args->a.rows == 1) {  // wider tiles, as one row has few sums
    for (; j + 8 <= end; j += 8) tile<1, 8, Row>(few, 0, j);
  }
  for (; j + 4 <= end; j += 4) all_rows<4, Row>(few, j);
  for (; j < end; ++j) all_rows<1, Row>(few, j);
}

void few_f32(const FewRows& few, int64_t begin, int64_t end) {
  weight_rows<StoredRow<float>>(few, begin, end);
}
void few_bf16(const FewRows& few, int64_t begin, int64_t end) {
  weight_rows<StoredRow<bf16>>(few, begin, end);
}
void few_int8(const FewRows& few, int64_t begin, int64_t end) {
  weight_rows<Int8Row>(few, begin, end);
}
void few_int4(const FewRows& few, int64_t begin, int64_t end) {
  weight_rows<Int4Row>(few, begin, end);
}

// Row `row` of the packed weights to `out` [columns], whose type T is A's.
template <typename Row, typename T>
HWY_INLINE void unpack(const DecodeGemmArgs& args, int64_t row, T* out) {
  Row from;
  from.bind(args, row);
  const int64_t columns = args.packed.columns;
  const int64_t whole = columns / kPackGroup;
  for (int64_t group = 0; group < whole; ++group) {
    for (int v = 0; v < kParts; ++v) {
      store(from.part(group, v), out + group * kPackGroup + v * kLanes);
    }
  }
  if (whole * kPackGroup == columns) return;
  T last[kPackGroup];
  for (int v = 0; v < kParts; ++v) store(from.part(whole, v), last + v * kLanes);
  std::copy_n(last, columns - whole * kPackGroup, out + whole * kPackGroup);
}

void unpack_weights(const DecodeGemmArgs& args, int64_t row, void* out) {
  const bool int8 = args.packed.kind == PackKind::int8;
  if (args.a.dtype == DType::bf16) {
    int8 ? unpack<Int8Row>(args, row, static_cast<bf16*>(out))
         : unpack<Int4Row>(args, row, static_cast<bf16*>(out));
  } else {
    int8 ? unpack<Int8Row>(args, row, static_cast<float*>(out))
         : unpack<Int4Row>(args, row, static_cast<float*>(out));
  }
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

HWY_EXPORT(few_f32);
HWY_EXPORT(few_bf16);
HWY_EXPORT(few_int8);
HWY_EXPORT(few_int4);
HWY_EXPORT(unpack_weights);

constexpr int64_t kPanelRows = 256;  // rows of weights that are unpacked at a time

void multiply_few(CpuStream& stream, const DecodeGemmArgs& args) {
  const int64_t m = args.a.rows;
  const int64_t k = args.a.cols;
  const int64_t stride = (k + kPackGroup - 1) / kPackGroup * kPackGroup;
  auto* a = static_cast<float*>(stream.scratch(m * stride * int64_t{sizeof(float)}));
  for (int64_t i = 0; i < m; ++i) {
    if (args.a.dtype == DType::bf16) {
      convert_elements(args.a.row<bf16>(i), a + i * stride, k);
    } else {
      std::copy_n(args.a.row<float>(i), k, a + i * stride);
    }
    std::fill_n(a + i * stride + k, stride - k, 0.0F);
  }
  const FewRows few = {a, stride, &args};
  const int64_t n = args.c.cols;
  parallel_ranges(n, 8, [&](int64_t begin, int64_t end, int) {
    if (args.packed && args.packed.kind == PackKind::int8) {
      HWY_DYNAMIC_DISPATCH(few_int8)(few, begin, end);
    } else if (args.packed) {
      HWY_DYNAMIC_DISPATCH(few_int4)(few, begin, end);
    } else if (args.weight.dtype == DType::bf16) {
      HWY_DYNAMIC_DISPATCH(few_bf16)(few, begin, end);
    } else {
      HWY_DYNAMIC_DISPATCH(few_f32)(few, begin, end);
    }
  });
}

void multiply_many(CpuStream& stream, const DecodeGemmArgs& args) {
  if (!args.packed) {
    multiply(stream, {.a = args.a,
                      .b = args.weight,
                      .c = args.c,
                      .transpose_b = true,
                      .bias = args.bias,
                      .alpha = args.alpha});
    return;
  }
  const int64_t n = args.packed.rows;
  const int64_t k = args.packed.columns;
  void* room = stream.operands(std::min(kPanelRows, n) * k * dtype_bytes(args.a.dtype));
  for (int64_t first = 0; first < n; first += kPanelRows) {
    const Matrix panel = matrix(room, args.a.dtype, std::min(kPanelRows, n - first), k);
    parallel_ranges(panel.rows, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        HWY_DYNAMIC_DISPATCH(unpack_weights)(args, first + row, panel.slice_rows(row, 1).data);
      }
    });
    Vector bias = args.bias;
    if (bias) {
      bias.data = static_cast<char*>(bias.data) + first * dtype_bytes(bias.dtype);
      bias.count = panel.rows;
    }
    multiply(stream, {.a = args.a,
                      .b = panel,
                      .c = args.c.slice_cols(first, panel.rows),
                      .transpose_b = true,
                      .bias = bias,
                      .alpha = args.alpha});
  }
}

}  // namespace

void cpu_decode_gemm(Stream& stream, const DecodeGemmArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  if (args.c.rows > 0 && args.c.cols > 0) {
    if (args.a.rows <= kFewRows && decode_gemm_bf16_possible(args)) {
      decode_gemm_bf16(cpu_stream(stream), args);
    } else if (args.a.rows <= kFewRows) {
      multiply_few(cpu_stream(stream), args);
    } else {
      multiply_many(cpu_stream(stream), args);
    }
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
