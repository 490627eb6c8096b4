#include "tutti/engine/cpu/gemm_bf16_tile.h"

#include <cstring>

#include "tutti/engine/cpu/gemm_bf16_avx512.h"

namespace tutti::engine {
namespace {

TUTTI_AVX512_INLINE __m512 multiply_add(__m512i a, __m512i b, __m512 sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Prefetches the tile of C while the sums are computed.
TUTTI_AVX512_INLINE void prefetch_result(const TileEnd& end) {
  if (end.transposed) return;
  for (int64_t i = 0; i < end.rows; ++i) {
    const char* line = end.c_f32 != nullptr
                           ? reinterpret_cast<const char*>(end.c_f32 + i * end.c_stride)
                           : reinterpret_cast<const char*>(end.c_bf16 + i * end.c_stride);
    _mm_prefetch(line, _MM_HINT_T0);
    _mm_prefetch(line + 64, _MM_HINT_T0);
    if (end.c_f32 != nullptr) {
      _mm_prefetch(line + 128, _MM_HINT_T0);
      _mm_prefetch(line + 191, _MM_HINT_T0);
    }
  }
}

template <int kVectors>
struct Sums {
  __m512 at[kPanelRows][kVectors];
};

template <int kVectors>
TUTTI_AVX512_INLINE void store(const Sums<kVectors>& sums, const TileEnd& end) {
  const __m512 alpha = _mm512_set1_ps(end.alpha);
  __mmask16 mask[kVectors];
  __m512 bias[kVectors];
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) {
    mask[j] = static_cast<__mmask16>(low_bits(end.cols - kLanes * j, 16));
    bias[j] = end.bias != nullptr ? _mm512_maskz_loadu_ps(mask[j], end.bias + kLanes * j)
                                  : _mm512_setzero_ps();
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPanelRows; ++i) {
    if (i < end.rows) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        __m512 value = _mm512_fmadd_ps(sums.at[i][j], alpha, bias[j]);
        if (end.add != nullptr) {
          value = _mm512_add_ps(
              value, _mm512_maskz_loadu_ps(mask[j], end.add + i * end.add_stride + kLanes * j));
        }
        if (end.add_bf16 != nullptr) {
          const __m256i c =
              _mm256_maskz_loadu_epi16(mask[j], end.add_bf16 + i * end.add_stride + kLanes * j);
          value = _mm512_add_ps(
              value, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(c), 16)));
        }
        if (end.c_f32 != nullptr) {
          _mm512_mask_storeu_ps(end.c_f32 + i * end.c_stride + kLanes * j, mask[j], value);
        } else {
          _mm256_mask_storeu_epi16(end.c_bf16 + i * end.c_stride + kLanes * j, mask[j],
                                   reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
        }
      }
    }
  }
}

template <int kVectors>
TUTTI_AVX512_INLINE void store_transposed(const Sums<kVectors>& sums, const TileEnd& end) {
  const __m512 alpha = _mm512_set1_ps(end.alpha);
  float values[kPanelRows][kVectors * kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kPanelRows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      _mm512_storeu_ps(values[i] + kLanes * j, _mm512_mul_ps(sums.at[i][j], alpha));
    }
  }
  for (int64_t j = 0; j < end.cols; ++j) {
    float* c = end.c_f32 + j * end.c_stride;
    const float* add = end.add == nullptr ? nullptr : end.add + j * end.add_stride;
    for (int64_t i = 0; i < end.rows; ++i) c[i] = values[i][j] + (add == nullptr ? 0 : add[i]);
  }
}

// sums += outer product of x and one word of the columns.
template <int kVectors>
TUTTI_AVX512_INLINE void multiply_word(const int32_t word[kPanelRows], const uint32_t* b,
                                       Sums<kVectors>& sums) {
  __m512i column[kVectors];
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) column[j] = _mm512_loadu_si512(b + kLanes * j);
#pragma GCC unroll 8
  for (int i = 0; i < kPanelRows; ++i) {
    const __m512i x = _mm512_set1_epi32(word[i]);
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) sums.at[i][j] = multiply_add(x, column[j], sums.at[i][j]);
  }
}

template <int kVectors>
TUTTI_AVX512_INLINE void add_term(const TileTerm& term, Sums<kVectors>& sums) {
  const TileRows& a = term.a;
  const uint32_t* b = term.b;
  const char* row[kPanelRows];
#pragma GCC unroll 8
  for (int i = 0; i < kPanelRows; ++i) row[i] = a.row[i];
  int64_t at = 0;
  int32_t word[kPanelRows];
  const int64_t whole = term.words - (a.odd ? 1 : 0);
  for (int64_t k = 0; k < whole; ++k, at += a.step_bytes, b += kPanelCols) {
#pragma GCC unroll 8
    for (int i = 0; i < kPanelRows; ++i) std::memcpy(&word[i], row[i] + at, sizeof word[i]);
    multiply_word(word, b, sums);
  }
  if (a.odd) {
#pragma GCC unroll 8
    for (int i = 0; i < kPanelRows; ++i) {
      uint16_t element;
      std::memcpy(&element, row[i] + at, sizeof element);
      word[i] = element;
    }
    multiply_word(word, b, sums);
  }
}

template <int kVectors>
TUTTI_AVX512 void tile(const TileTerm& term, const TileEnd& end) {
  prefetch_result(end);
  Sums<kVectors> sums;
#pragma GCC unroll 8
  // NOLINTNEXTLINE(modernize-loop-convert): the index form takes the unroll pragma
  for (int i = 0; i < kPanelRows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) sums.at[i][j] = _mm512_setzero_ps();
  }
  add_term(term, sums);
  if (end.transposed) {
    store_transposed(sums, end);
  } else {
    store(sums, end);
  }
}

}  // namespace

void multiply_tile(const TileTerm& term, const TileEnd& end) {
  if (end.cols > 2 * kLanes) {
    tile<3>(term, end);
  } else if (end.cols > kLanes) {
    tile<2>(term, end);
  } else {
    tile<1>(term, end);
  }
}

}  // namespace tutti::engine
