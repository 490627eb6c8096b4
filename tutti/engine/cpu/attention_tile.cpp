// Attention tiles in f32 (attention_tile.h), from f32 or bf16 tensors, per instruction set.
#include "tutti/engine/cpu/attention_tile.h"

#include <algorithm>
#include <limits>

#include "tutti/base/check.h"
#include "tutti/engine/cpu/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/attention_tile.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

// The register tile of products: kMaxRows x kMaxVectors accumulators.
inline constexpr int kMaxRows = 6;
inline constexpr int kMaxVectors = kLanes >= 16 ? 4 : 2;

// Words of this file's packed operands are f32.
HWY_INLINE const float* floats(const uint32_t* words) {
  return reinterpret_cast<const float*>(words);
}
HWY_INLINE float* floats(uint32_t* words) { return reinterpret_cast<float*>(words); }

template <typename T>
void pack_rows(const TileSource& source, uint32_t* out) {
  const int64_t padded = padded_columns(source.cols);
  for (int64_t r = 0; r < source.rows; ++r) {
    const T* from = static_cast<const T*>(source.data) + r * source.ld;
    float* to = floats(out) + r * padded;
    int64_t c = 0;
    for (; c + kLanes <= source.cols; c += kLanes) store(load(from + c), to + c);
    if (c < source.cols) {
      store(load(from + c, PartBlock{source.cols - c}), to + c);
      c += kLanes;
    }
    for (; c < padded; c += kLanes) store(zero(), to + c);
  }
}

template <typename T>
void pack_columns(const TileSource& source, uint32_t* spare, uint32_t* out) {
  const int64_t padded = padded_columns(source.cols);
  pack_rows<T>(source, spare);
#if HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < source.rows; ++r) {
    for (int64_t c = 0; c < padded; ++c) out[c * kTile + r] = spare[r * padded + c];
  }
#else  // by blocks of 4 x 4: every other instruction set has 128-bit vectors
  const hn::Full128<float> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const int64_t rows = round_up(source.rows, 4);
  std::fill(spare + source.rows * padded, spare + rows * padded, 0U);
  for (int64_t c = 0; c < padded; c += 4) {
    for (int64_t r = 0; r < rows; r += 4) {
      const float* from = floats(spare) + r * padded + c;
      const auto r0 = hn::LoadU(d, from);
      const auto r1 = hn::LoadU(d, from + padded);
      const auto r2 = hn::LoadU(d, from + 2 * padded);
      const auto r3 = hn::LoadU(d, from + 3 * padded);
      const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
      float* to = floats(out) + c * kTile + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, low01, low23)), d, to);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23)), d, to + kTile);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, high01, high23)), d, to + 2 * kTile);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23)), d, to + 3 * kTile);
    }
  }
#endif
}

// C[row : row + kRows, col : col + kVectors * kLanes] over depth [begin, end).
template <int kRows, int kVectors>
HWY_NOINLINE void multiply_block(const TileProduct& product, int64_t row, int64_t col,
                                 int64_t begin, int64_t end) {
  float* c = product.c + row * product.ldc + col;
  const int64_t ldc = product.ldc;
  F32 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[m][v] = product.accumulate ? load(c + m * ldc + v * kLanes) : zero();
    }
  }
  const int64_t a_row = product.a_row;
  const int64_t a_depth = product.a_depth;
  const int64_t ldb = product.ldb;
  const float* a = floats(product.a) + row * a_row + begin * a_depth;
  const float* b = floats(product.b) + begin * ldb + col;
  for (int64_t k = begin; k < end; ++k) {
    F32 right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const F32 left = set(a[m * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[m][v] = hn::MulAdd(left, right[v], sums[m][v]);
    }
    a += a_depth;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(sums[m][v], c + m * ldc + v * kLanes);
  }
}

template <int kRows>
void multiply_columns(const TileProduct& product, int64_t row, int64_t col, int64_t vectors,
                      int64_t begin, int64_t end) {
  if constexpr (kMaxVectors == 4) {
    if (vectors >= 4) return multiply_block<kRows, 4>(product, row, col, begin, end);
    if (vectors == 3) return multiply_block<kRows, 3>(product, row, col, begin, end);
  }
  if (vectors >= 2) return multiply_block<kRows, 2>(product, row, col, begin, end);
  multiply_block<kRows, 1>(product, row, col, begin, end);
}

void multiply(const TileProduct& product) {
  for (int64_t col = 0; col < product.cols; col += kMaxVectors * kLanes) {
    for (int64_t row = 0; row < product.rows; row += kMaxRows) {
      const int64_t rows = std::min<int64_t>(kMaxRows, product.rows - row);
      int64_t cols = product.cols;
      int64_t begin = 0;
      int64_t end = product.depth;
      if (product.skip == Skip::columns_after_row) {
        cols = std::min(cols, round_up(row + rows, kLanes));
      }
      if (product.skip == Skip::depth_after_row) end = std::min(end, row + rows);
      if (product.skip == Skip::depth_before_row) begin = std::min(end, row);
      const int64_t vectors = (cols - col) / kLanes;
      if (vectors <= 0) continue;
      switch (rows) {
        case 6: multiply_columns<6>(product, row, col, vectors, begin, end); break;
        case 5: multiply_columns<5>(product, row, col, vectors, begin, end); break;
        case 4: multiply_columns<4>(product, row, col, vectors, begin, end); break;
        case 3: multiply_columns<3>(product, row, col, vectors, begin, end); break;
        case 2: multiply_columns<2>(product, row, col, vectors, begin, end); break;
        default: multiply_columns<1>(product, row, col, vectors, begin, end);
      }
    }
  }
}

// 2^x for x <= 0 (or a little above) with a relative error below 2e-7; 0 below -126.5; NaN stays
// NaN. Coefficients of Cephes' exp2f.
HWY_INLINE F32 exp2(F32 x) {
  const hn::Rebind<int32_t, Tag> di;
  const F32 low = set(-127.0F);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  const F32 magic = set(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const F32 shifted = hn::Add(x, magic);
  const F32 f = hn::Sub(x, hn::Sub(shifted, magic));
  F32 p = set(1.535336188319500e-4F);
  p = hn::MulAdd(p, f, set(1.339887440266574e-3F));
  p = hn::MulAdd(p, f, set(9.618437357674640e-3F));
  p = hn::MulAdd(p, f, set(5.550332471162809e-2F));
  p = hn::MulAdd(p, f, set(2.402264791363012e-1F));
  p = hn::MulAdd(p, f, set(6.931472028550421e-1F));
  p = hn::MulAdd(p, f, set(1.0F));
  // An exponent of -127 encodes 0.
  const auto exponent = hn::Add(hn::BitCast(di, shifted), hn::Set(di, 127));
  return hn::Mul(p, hn::BitCast(Tag(), hn::ShiftLeft<23>(exponent)));
}

HWY_INLINE auto first_lanes(int64_t count) {
  return hn::FirstN(Tag(), static_cast<size_t>(std::clamp<int64_t>(count, 0, kLanes)));
}

// Columns [begin, end) of a tile's row; blocks of lanes start at block_begin(), a multiple of
// kLanes.
struct SeenColumns {
  int64_t begin, end;
  int64_t block_begin() const { return begin / kLanes * kLanes; }
  // Lanes of the block at column c.
  HWY_INLINE auto lanes(int64_t c) const {
    const auto before_end = first_lanes(end - c);
    return begin <= c ? before_end : hn::AndNot(first_lanes(begin - c), before_end);
  }
};

HWY_INLINE SeenColumns seen_columns(const TileMask& mask, int64_t row) {
  return {mask.hidden(row), mask.seen_end(row)};
}

void cap(float* scores, int64_t rows, float cap_slope) {
  const F32 slope = set(cap_slope);
  const F32 width = set(1 / cap_slope);
  for (int64_t i = 0; i < rows * kTile; i += kLanes) {
    store(hn::Mul(tanh(hn::Mul(load(scores + i), slope)), width), scores + i);
  }
}

void softmax(const SoftmaxTile& tile) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < tile.mask.rows; ++r) {
    const float* scores = tile.scores + r * kTile;
    float* p = floats(tile.p) + r * kTile;
    const SeenColumns seen = seen_columns(tile.mask, r);
    if (seen.begin >= seen.end) {
      std::fill(p, p + kTile, 0.0F);
      continue;
    }
    F32 largest = set(-infinity);
    for (int64_t c = seen.block_begin(); c < seen.end; c += kLanes) {
      const F32 s = load(scores + c);
      largest = hn::Max(largest, hn::IfThenElse(seen.lanes(c), s, largest));
    }
    const float before = tile.row_max[r];
    float* sums = tile.row_sum + r * kSumLanes;
    if (!hn::AllFalse(Tag(), hn::Gt(largest, set(before)))) {
      const float now = hn::GetLane(hn::MaxOfLanes(Tag(), largest));
      tile.row_max[r] = now;
      const F32 factor = exp2(set((before - now) * tile.log2_scale));
      store(hn::Mul(load(sums), factor), sums);
      float* out = tile.out + r * tile.out_cols;
      for (int64_t c = 0; c < tile.out_cols; c += kLanes) {
        store(hn::Mul(load(out + c), factor), out + c);
      }
    }
    const F32 log2_scale = set(tile.log2_scale);
    const F32 shift = set(tile.row_max[r] * tile.log2_scale);
    F32 sum_of_p = load(sums);
    int64_t c = 0;
    for (; c < seen.block_begin(); c += kLanes) store(zero(), p + c);
    for (; c < seen.end; c += kLanes) {
      const F32 all = exp2(hn::MulSub(load(scores + c), log2_scale, shift));
      const F32 x = hn::IfThenElseZero(seen.lanes(c), all);
      sum_of_p = hn::Add(sum_of_p, x);
      store(x, p + c);
    }
    store(sum_of_p, sums);
    for (; c < kTile; c += kLanes) store(zero(), p + c);
  }
}

void gradient(const GradientTile& tile) {
  const F32 log2_scale = set(tile.log2_scale);
  const F32 cap_slope = set(tile.cap_slope);
  for (int64_t r = 0; r < tile.mask.rows; ++r) {
    const float* scores = tile.scores + r * kTile;
    const float* dp = tile.dp + r * kTile;
    float* p = floats(tile.p_by_columns) + r * kTile;
    float* ds = floats(tile.ds_by_columns) + r * kTile;
    const F32 log2_lse = set(tile.log2_lse[r]);
    const F32 delta = set(tile.delta[r]);
    const SeenColumns seen = seen_columns(tile.mask, r);
    int64_t c = 0;
    for (; c < std::min(seen.block_begin(), seen.end); c += kLanes) {
      store(zero(), p + c);
      store(zero(), ds + c);
    }
    for (; c < seen.end; c += kLanes) {
      const auto lanes = seen.lanes(c);
      const F32 s = load(scores + c);
      const F32 x = exp2(hn::MulSub(s, log2_scale, log2_lse));
      F32 dx = hn::Mul(x, hn::Sub(load(dp + c), delta));
      if (tile.cap_slope != 0) {
        const F32 t = hn::Mul(s, cap_slope);
        dx = hn::Mul(dx, hn::NegMulAdd(t, t, set(1.0F)));
      }
      store(hn::IfThenElseZero(lanes, x), p + c);
      store(hn::IfThenElseZero(lanes, dx), ds + c);
    }
    for (; c < kTile; c += kLanes) {
      store(zero(), p + c);
      store(zero(), ds + c);
    }
  }
}

template <typename T>
void store_rows(const float* tile, int64_t tile_ld, const float* factors, int64_t rows,
                int64_t cols, void* out, int64_t out_ld) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = tile + r * tile_ld;
    T* to = static_cast<T*>(out) + r * out_ld;
    const F32 factor = set(factors[r]);
    int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) store(hn::Mul(load(from + c), factor), to + c);
    if (c < cols) store(hn::Mul(load(from + c), factor), to + c, PartBlock{cols - c});
  }
}

template <typename T>
void row_dots(const TileSource& a, const TileSource& b, float* dots) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* left = static_cast<const T*>(a.data) + r * a.ld;
    const T* right = static_cast<const T*>(b.data) + r * b.ld;
    SlotSum total;
    for_lanes(a.cols, [&](int64_t j, auto block, auto slot) TUTTI_LANES_BODY {
      F32& s = total.slots[slot];
      s = hn::MulAdd(load(left + j, block), load(right + j, block), s);
    });
    dots[r] = total.total();
  }
}

template <typename T>
TileOps table_of() {
  TileOps ops;
  ops.elements_per_word = 1;
  ops.pack_rows = pack_rows<T>;
  ops.pack_columns = pack_columns<T>;
  ops.pack_depth = pack_rows<T>;  // a row of B is a row of the source
  ops.multiply = multiply;
  ops.cap = cap;
  ops.softmax = softmax;
  ops.gradient = gradient;
  ops.store = store_rows<T>;
  ops.row_dots = row_dots<T>;
  return ops;
}

const TileOps* f32_table() {
  static const TileOps table = table_of<float>();
  return &table;
}
const TileOps* bf16_table() {
  static const TileOps table = table_of<bf16>();
  return &table;
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(f32_table);
HWY_EXPORT(bf16_table);

const TileOps& tile_ops(DType dtype) {
  if (dtype == DType::f32) return *HWY_DYNAMIC_DISPATCH(f32_table)();
  TUTTI_CHECK(dtype == DType::bf16, "attention: unsupported type {}", dtype_name(dtype));
  const TileOps& converting = *HWY_DYNAMIC_DISPATCH(bf16_table)();
  if (!use_bf16_dot()) return converting;
  static const TileOps dot = bf16_dot_tile_ops(converting);
  return dot;
}

}  // namespace tutti::engine
#endif
