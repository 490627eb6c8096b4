#include "tutti/engine/cpu/gemm_bf16_pack.h"

#include <algorithm>

#include "tutti/engine/cpu/gemm_bf16_avx512.h"

namespace tutti::engine {
namespace {

// Transposes a panel: r[i] holds 16 words of w = i; on return r[j] holds word j of the 16 w.
TUTTI_AVX512_INLINE void transpose16(__m512i r[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

TUTTI_AVX512_INLINE void transpose8(__m256i r[8]) {
  __m256i t[8];
  __m256i u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  }
}

// Packs one panel of kWidth w, of which `valid` exist, whose k are contiguous in memory. It
// prefetches the rows after those it packs, which come next, here or in the next panel.
template <int kWidth>
TUTTI_AVX512_INLINE void pack_k_contiguous(const bf16* src, int64_t stride, int64_t valid,
                                           int64_t count, uint32_t* out) {
  constexpr int kStep = kWidth % 16 == 0 ? 16 : 8;  // words and w of one transposition
  for (int w = 0; w < kWidth; w += kStep) {
    const bf16* row = src + w * stride;
    const int64_t rows = valid - w;
    for (int64_t k = 0; k < count; k += kStep * 2) {
      const int64_t words = std::min<int64_t>(kStep, (count - k + 1) / 2);
      uint32_t* to = out + k / 2 * kWidth + w;
      if constexpr (kStep == 16) {
        __m512i r[16];
        const __mmask32 mask = low_bits(count - k, 32);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          _mm_prefetch(reinterpret_cast<const char*>(row + (kStep + i) * stride + k), _MM_HINT_T1);
          r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, row + i * stride + k)
                          : _mm512_setzero_si512();
        }
        transpose16(r);
        if (words == 16) {
#pragma GCC unroll 16
          for (int j = 0; j < 16; ++j) _mm512_storeu_si512(to + j * kWidth, r[j]);
        } else {
          for (int j = 0; j < words; ++j) _mm512_storeu_si512(to + j * kWidth, r[j]);
        }
      } else {
        __m256i r[8];
        const auto mask = static_cast<__mmask16>(low_bits(count - k, 16));
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
          r[i] = i < rows ? _mm256_maskz_loadu_epi16(mask, row + i * stride + k)
                          : _mm256_setzero_si256();
        }
        transpose8(r);
        for (int j = 0; j < words; ++j) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j * kWidth), r[j]);
        }
      }
    }
  }
}

// The words of 16 consecutive w at row `at` and the row after it, `next`.
TUTTI_AVX512_INLINE __m512i pair_rows(__m256i at, __m256i next) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(at),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(next), 16));
}

// Packs `panels` consecutive panels whose w are contiguous in memory; panels are `panel_words`
// apart in `out`. They are packed together, so that a cache line of a row is fetched once. Rows are
// prefetched, because strides are too long for the hardware prefetcher.
template <int kWidth>
TUTTI_AVX512_INLINE void pack_w_contiguous(const bf16* src, int64_t stride, int64_t valid,
                                           int64_t count, int64_t panels, int64_t panel_words,
                                           uint32_t* out) {
  constexpr int64_t kAhead = 16;
  const int64_t width = std::min(panels * kWidth, valid);
  for (int64_t k = 0; k < count; k += 2) {
    const bf16* row = src + k * stride;
    const bool has_next = k + 1 < count;
    if (k + kAhead + 1 < count) {
      for (int64_t w = 0; w < width; w += 32) {
        _mm_prefetch(reinterpret_cast<const char*>(row + kAhead * stride + w), _MM_HINT_T1);
        _mm_prefetch(reinterpret_cast<const char*>(row + (kAhead + 1) * stride + w), _MM_HINT_T1);
      }
    }
    uint32_t* to = out + k / 2 * kWidth;
    for (int64_t p = 0; p < panels; ++p, to += panel_words) {
      const bf16* at = row + p * kWidth;
      const int64_t rest = valid - p * kWidth;
      if constexpr (kWidth == kLanes / 2) {
        const auto mask = static_cast<__mmask8>(low_bits(rest, 8));
        const __m128i low = _mm_maskz_loadu_epi16(mask, at);
        const __m128i high = _mm_maskz_loadu_epi16(has_next ? mask : __mmask8{0}, at + stride);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi16(low, high));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + 1, _mm_unpackhi_epi16(low, high));
      } else if (rest >= kWidth && has_next) {
#pragma GCC unroll 3
        for (int w = 0; w < kWidth; w += kLanes) {
          _mm512_storeu_si512(
              to + w, pair_rows(_mm256_loadu_epi16(at + w), _mm256_loadu_epi16(at + stride + w)));
        }
      } else {
        for (int w = 0; w < kWidth; w += kLanes) {
          const auto mask = static_cast<__mmask16>(low_bits(rest - w, 16));
          const __m256i low = _mm256_maskz_loadu_epi16(mask, at + w);
          const __m256i high =
              _mm256_maskz_loadu_epi16(has_next ? mask : __mmask16{0}, at + stride + w);
          _mm512_storeu_si512(to + w, pair_rows(low, high));
        }
      }
    }
  }
}

template <int kWidth>
TUTTI_AVX512 void pack_panels(const PackOperand& x, const PackDepth& depth, int64_t first_panel,
                              int64_t panels, uint32_t* out) {
  constexpr int64_t kGroup = kWidth == kPanelRows ? 4 : 1;  // panels: a cache line of a row
  const int64_t panel_words = kWidth * depth.words;
  for (int64_t p = 0; p < panels;) {
    const int64_t w = (first_panel + p) * kWidth;
    uint32_t* to = out + p * panel_words;
    if (x.k_contiguous) {
      pack_k_contiguous<kWidth>(x.data + w * x.stride + depth.first, x.stride, x.width - w,
                                depth.count, to);
      ++p;
    } else {
      const int64_t group = std::min(kGroup, panels - p);
      pack_w_contiguous<kWidth>(x.data + depth.first * x.stride + w, x.stride, x.width - w,
                                depth.count, group, panel_words, to);
      p += group;
    }
  }
}

}  // namespace

void pack_rows(const PackOperand& x, const PackDepth& depth, int64_t first_panel, int64_t panels,
               uint32_t* out) {
  pack_panels<kPanelRows>(x, depth, first_panel, panels, out);
}

void pack_columns(const PackOperand& x, const PackDepth& depth, int64_t first_panel, int64_t panels,
                  uint32_t* out) {
  pack_panels<kPanelCols>(x, depth, first_panel, panels, out);
}

}  // namespace tutti::engine
