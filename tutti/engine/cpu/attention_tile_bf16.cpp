// Attention tiles with dot products of bf16 pairs (attention_tile.h), in AVX512-BF16 intrinsics,
// which Highway 1.0.3 lacks. Compiled by function attribute and called only if use_bf16_dot().
// Sums, maxima and exponentials are f32; probabilities and their gradients are rounded to bf16
// (nearest even) for the second products.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own headers trigger this warning in every unmasked AVX-512 intrinsic (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <limits>

#include "tutti/engine/cpu/attention_tile.h"

#define TUTTI_BF16_DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define TUTTI_BF16_DOT_INLINE TUTTI_BF16_DOT __attribute__((always_inline)) inline

namespace tutti::engine {
namespace {

constexpr int kLanes = 16;       // words of a register
constexpr int kVectors = 4;      // registers of a tile's row
constexpr int64_t kMaxRows = 6;  // of the register tile: kMaxRows x kVectors accumulators

static_assert(kTile == kVectors * kLanes && kSumLanes == kLanes);

// Lane mask of the first `count` of 16 or 32 lanes; count may be outside [0, lanes].
__mmask16 first16(int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<int64_t>(count, 0, 16)) - 1U);
}
__mmask32 first32(int64_t count) {
  return static_cast<__mmask32>((uint64_t{1} << std::clamp<int64_t>(count, 0, 32)) - 1U);
}

const bf16* source_row(const TileSource& source, int64_t row) {
  return static_cast<const bf16*>(source.data) + row * source.ld;
}

// 32 columns from `col` of a row, zero beyond the row's end.
TUTTI_BF16_DOT_INLINE __m512i load_row(const TileSource& source, int64_t row, int64_t col) {
  return _mm512_maskz_loadu_epi16(first32(source.cols - col), source_row(source, row) + col);
}

TUTTI_BF16_DOT void pack_rows(const TileSource& source, uint32_t* out) {
  const int64_t words = padded_columns(source.cols) / 2;
  for (int64_t r = 0; r < source.rows; ++r) {
    for (int64_t w = 0; w < words; w += kLanes) {
      _mm512_mask_storeu_epi32(out + r * words + w, first16(words - w), load_row(source, r, 2 * w));
    }
  }
}

// Transposes 16 x 16 words: rows[i] lane j becomes rows[j] lane i.
TUTTI_BF16_DOT_INLINE void transpose(__m512i (&rows)[16]) {
  __m512i step[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    step[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    step[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[4 * i] = _mm512_unpacklo_epi64(step[4 * i], step[4 * i + 2]);
    rows[4 * i + 1] = _mm512_unpackhi_epi64(step[4 * i], step[4 * i + 2]);
    rows[4 * i + 2] = _mm512_unpacklo_epi64(step[4 * i + 1], step[4 * i + 3]);
    rows[4 * i + 3] = _mm512_unpackhi_epi64(step[4 * i + 1], step[4 * i + 3]);
  }
  // Now quarter q of rows[4 i + j] is column 4 q + j of rows 4 i .. 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(rows[j], rows[4 + j], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(rows[j], rows[4 + j], 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(rows[8 + j], rows[12 + j], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(rows[8 + j], rows[12 + j], 0xee);
    step[j] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    step[4 + j] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    step[8 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    step[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = step[i];
}

TUTTI_BF16_DOT void pack_columns(const TileSource& source, uint32_t* /*spare*/, uint32_t* out) {
  const int64_t words = padded_columns(source.cols) / 2;
  for (int64_t r = 0; r < source.rows; r += 16) {
    for (int64_t w = 0; w < words; w += 16) {
      __m512i rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        rows[i] = r + i < source.rows ? load_row(source, r + i, 2 * w) : _mm512_setzero_si512();
      }
      transpose(rows);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        if (w + i < words) _mm512_storeu_si512(out + (w + i) * kTile + r, rows[i]);
      }
    }
  }
}

// For lanes of 16 bits of two registers: first[0], second[0], first[1], second[1], ...
TUTTI_BF16_DOT_INLINE __m512i interleave_low() {
  const __m512i pairs = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return _mm512_add_epi32(_mm512_mullo_epi32(pairs, _mm512_set1_epi32(0x00010001)),
                          _mm512_set1_epi32(0x00200000));
}

TUTTI_BF16_DOT void pack_depth(const TileSource& source, uint32_t* out) {
  const __m512i low = interleave_low();
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const int64_t padded = padded_columns(source.cols);
  for (int64_t r = 0; r < source.rows; r += 2) {
    uint32_t* to = out + r / 2 * padded;
    for (int64_t c = 0; c < padded; c += 32) {
      const __m512i first = load_row(source, r, c);
      const __m512i second =
          r + 1 < source.rows ? load_row(source, r + 1, c) : _mm512_setzero_si512();
      _mm512_storeu_si512(to + c, _mm512_permutex2var_epi16(first, low, second));
      if (c + 16 < padded) {
        _mm512_storeu_si512(to + c + 16, _mm512_permutex2var_epi16(first, high, second));
      }
    }
  }
}

// C[row : row + kRows, col : col + kCols * kLanes] over depth words [begin, end).
template <int kRows, int kCols>
TUTTI_BF16_DOT void multiply_block(const TileProduct& product, int64_t row, int64_t col,
                                   int64_t begin, int64_t end) {
  float* c = product.c + row * product.ldc + col;
  const int64_t ldc = product.ldc;
  __m512 sums[kRows][kCols];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kCols; ++v) {
      sums[m][v] =
          product.accumulate ? _mm512_loadu_ps(c + m * ldc + v * kLanes) : _mm512_setzero_ps();
    }
  }
  const int64_t a_row = product.a_row;
  const int64_t a_depth = product.a_depth;
  const int64_t ldb = product.ldb;
  const uint32_t* a = product.a + row * a_row + begin * a_depth;
  const uint32_t* b = product.b + begin * ldb + col;
  for (int64_t k = begin; k < end; ++k) {
    __m512bh right[kCols];
#pragma GCC unroll 4
    for (int v = 0; v < kCols; ++v) right[v] = (__m512bh)_mm512_loadu_si512(b + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const __m512bh left = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[m * a_row]));
#pragma GCC unroll 4
      for (int v = 0; v < kCols; ++v) {
        sums[m][v] = _mm512_dpbf16_ps(sums[m][v], left, right[v]);
      }
    }
    a += a_depth;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kCols; ++v) _mm512_storeu_ps(c + m * ldc + v * kLanes, sums[m][v]);
  }
}

using MultiplyBlock = void (*)(const TileProduct&, int64_t, int64_t, int64_t, int64_t);

constexpr MultiplyBlock kMultiplyBlock[kMaxRows][kVectors] = {
    {multiply_block<1, 1>, multiply_block<1, 2>, multiply_block<1, 3>, multiply_block<1, 4>},
    {multiply_block<2, 1>, multiply_block<2, 2>, multiply_block<2, 3>, multiply_block<2, 4>},
    {multiply_block<3, 1>, multiply_block<3, 2>, multiply_block<3, 3>, multiply_block<3, 4>},
    {multiply_block<4, 1>, multiply_block<4, 2>, multiply_block<4, 3>, multiply_block<4, 4>},
    {multiply_block<5, 1>, multiply_block<5, 2>, multiply_block<5, 3>, multiply_block<5, 4>},
    {multiply_block<6, 1>, multiply_block<6, 2>, multiply_block<6, 3>, multiply_block<6, 4>},
};

void multiply(const TileProduct& product) {
  for (int64_t col = 0; col < product.cols; col += kTile) {
    for (int64_t row = 0; row < product.rows; row += kMaxRows) {
      const int64_t rows = std::min(kMaxRows, product.rows - row);
      int64_t cols = product.cols;
      int64_t begin = 0;
      int64_t end = product.depth;
      if (product.skip == Skip::columns_after_row) {
        cols = std::min(cols, round_up(row + rows, kLanes));
      }
      if (product.skip == Skip::depth_after_row) end = std::min(end, (row + rows + 1) / 2);
      if (product.skip == Skip::depth_before_row) begin = std::min(end, row / 2);
      const int64_t vectors = std::min<int64_t>(kVectors, (cols - col) / kLanes);
      if (vectors > 0) kMultiplyBlock[rows - 1][vectors - 1](product, row, col, begin, end);
    }
  }
}

// 2^x for x <= 0 (or a little above) with a relative error below 2e-7; NaN stays NaN. Coefficients
// of Cephes' exp2f.
TUTTI_BF16_DOT_INLINE __m512 exp2(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.535336188319500e-4F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.339887440266574e-3F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.618437357674640e-3F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550332471162809e-2F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402264791363012e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931472028550421e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, n);
}

// Lanes of the register at column `col` that are in columns [begin, end).
__mmask16 between16(int64_t begin, int64_t end, int64_t col) {
  return static_cast<__mmask16>(first16(end - col) & ~first16(begin - col));
}

// Two registers of f32 as 32 bf16: low, then high.
TUTTI_BF16_DOT_INLINE __m512i round_to_bf16(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

TUTTI_BF16_DOT void softmax(const SoftmaxTile& tile) {
  const __m512 log2_scale = _mm512_set1_ps(tile.log2_scale);
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int64_t r = 0; r < tile.mask.rows; ++r) {
    const float* scores = tile.scores + r * kTile;
    uint32_t* p = tile.p + r * (kTile / 2);
    const int64_t begin = tile.mask.hidden(r);
    const int64_t end = tile.mask.seen_end(r);
    __m512 s[kVectors];
    __mmask16 seen[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      seen[v] = between16(begin, end, v * kLanes);
      s[v] = _mm512_mask_loadu_ps(lowest, seen[v], scores + v * kLanes);
    }
    const __m512 largest = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
    const float before = tile.row_max[r];
    float* sums = tile.row_sum + r * kSumLanes;
    if (_mm512_cmp_ps_mask(largest, _mm512_set1_ps(before), _CMP_GT_OQ) != 0) {
      const float now = _mm512_reduce_max_ps(largest);
      tile.row_max[r] = now;
      const __m512 factor = exp2(_mm512_set1_ps((before - now) * tile.log2_scale));
      _mm512_storeu_ps(sums, _mm512_mul_ps(_mm512_loadu_ps(sums), factor));
      float* out = tile.out + r * tile.out_cols;
      for (int64_t c = 0; c < tile.out_cols; c += kLanes) {
        _mm512_storeu_ps(out + c, _mm512_mul_ps(_mm512_loadu_ps(out + c), factor));
      }
    }
    const __m512 shift = _mm512_set1_ps(tile.row_max[r] * tile.log2_scale);
    __m512 x[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      x[v] = _mm512_maskz_mov_ps(seen[v], exp2(_mm512_fmsub_ps(s[v], log2_scale, shift)));
    }
    const __m512 total = _mm512_add_ps(_mm512_add_ps(x[0], x[1]), _mm512_add_ps(x[2], x[3]));
    _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), total));
    _mm512_storeu_si512(p, round_to_bf16(x[0], x[1]));
    _mm512_storeu_si512(p + kLanes, round_to_bf16(x[2], x[3]));
  }
}

TUTTI_BF16_DOT void gradient(const GradientTile& tile) {
  const __m512 log2_scale = _mm512_set1_ps(tile.log2_scale);
  const __m512i interleave = interleave_low();
  const __m512i spread =  // lanes 0..15 and 16..31 of one register, interleaved
      _mm512_sub_epi16(interleave, _mm512_set1_epi32(0x00100000));
  for (int64_t pair = 0; pair < tile.mask.rows; pair += 2) {
    __m512 x[2][kVectors];
    __m512 dx[2][kVectors];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int64_t r = pair + i;
      // If the number of rows is odd, the row after the last has no keys and reads nothing.
      const bool exists = r < tile.mask.rows;
      const int64_t begin = exists ? tile.mask.hidden(r) : 0;
      const int64_t end = exists ? tile.mask.seen_end(r) : 0;
      const __m512 log2_lse = _mm512_set1_ps(exists ? tile.log2_lse[r] : 0.0F);
      const __m512 delta = _mm512_set1_ps(exists ? tile.delta[r] : 0.0F);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __mmask16 seen = between16(begin, end, v * kLanes);
        const int64_t at = r * kTile + v * kLanes;
        const __m512 s = _mm512_maskz_loadu_ps(seen, tile.scores + at);
        const __m512 dp = _mm512_maskz_loadu_ps(seen, tile.dp + at);
        x[i][v] = _mm512_maskz_mov_ps(seen, exp2(_mm512_fmsub_ps(s, log2_scale, log2_lse)));
        dx[i][v] = _mm512_maskz_mul_ps(seen, x[i][v], _mm512_sub_ps(dp, delta));
        if (tile.cap_slope != 0) {
          const __m512 t = _mm512_mul_ps(s, _mm512_set1_ps(tile.cap_slope));
          dx[i][v] = _mm512_mul_ps(dx[i][v], _mm512_fnmadd_ps(t, t, _mm512_set1_ps(1.0F)));
        }
      }
      if (exists) {
        uint32_t* by_rows = tile.ds_by_rows + r * (kTile / 2);
        _mm512_storeu_si512(by_rows, round_to_bf16(dx[i][0], dx[i][1]));
        _mm512_storeu_si512(by_rows + kLanes, round_to_bf16(dx[i][2], dx[i][3]));
      }
    }
    const int64_t at = pair / 2 * kTile;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_si512(tile.p_by_columns + at + v * kLanes,
                          _mm512_permutexvar_epi16(spread, round_to_bf16(x[0][v], x[1][v])));
      _mm512_storeu_si512(tile.ds_by_columns + at + v * kLanes,
                          _mm512_permutexvar_epi16(spread, round_to_bf16(dx[0][v], dx[1][v])));
    }
  }
}

}  // namespace

TileOps bf16_dot_tile_ops(const TileOps& base) {
  TileOps ops = base;
  ops.elements_per_word = 2;
  ops.pack_rows = pack_rows;
  ops.pack_columns = pack_columns;
  ops.pack_depth = pack_depth;
  ops.multiply = multiply;
  ops.softmax = softmax;
  ops.gradient = gradient;
  return ops;
}

}  // namespace tutti::engine
