// The scheme of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", ACM
// TOMS 2008). Words are 32 bits: two bf16 that follow each other in k, which is what VDPBF16PS
// multiplies.
//
// A is packed into panels of kRows rows, B into panels of kCols columns, each [words][kRows or
// kCols], zero beyond the edges. A tile of C is kRows x kCols accumulators in registers. Threads
// split the longer side of C; the operand of the other side is packed once, for all threads, the
// own one block by block so that a block stays in the second-level cache.
#include "tutti/engine/cpu/gemm_bf16.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the deliberately undefined pass-through operand inside its own AVX-512 intrinsics
// for a use of an uninitialized variable (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <algorithm>

#include "tutti/engine/cpu/convert.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/parallel.h"

#define TUTTI_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))
#define TUTTI_AVX512_INLINE TUTTI_AVX512 __attribute__((always_inline)) inline

namespace tutti::engine {
namespace {

constexpr int kRows = 8;
constexpr int kCols = 48;
constexpr int kLanes = 16;
constexpr int64_t kMaxWords = 1536;         // of k in one pass over C
constexpr int64_t kBlockBytes = 400 << 10;  // of an operand's packed block, in 1 MiB of L2
constexpr int64_t kAlign = 4096;

// One operand as it is stored: element (w, k), w a row of A or a column of B.
struct Operand {
  const bf16* data;
  int64_t width;   // number of w
  int64_t stride;  // elements between consecutive k (k_contiguous: between consecutive w)
  bool k_contiguous;
};

struct Product {
  int64_t m, n, k;
  Operand a, b;
  Matrix c;
  bool accumulate;
  float alpha;
  const float* bias;  // [n] or null
  float* sums;        // [m, n] between passes when C is not f32, else null
};

// A range of k that one pass over C handles.
struct Depth {
  int64_t first, count, words;
  bool is_first, is_last;
};

// Panels: r[i] holds 16 words of w = i; on return r[j] holds word j of the 16 w.
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

constexpr uint32_t low_bits(int64_t count, int width) {
  if (count <= 0) return 0;
  return count >= width ? static_cast<uint32_t>((uint64_t{1} << width) - 1)
                        : (uint32_t{1} << count) - 1;
}

// Packs one panel of kWidth w, of which `valid` exist, whose k are contiguous in memory.
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
// apart in `out`. Together, so that a cache line of a row is fetched once, and rows ahead of their
// use: strides are too long for the processor's own prefetching.
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
TUTTI_AVX512 void pack_panels(const Operand& x, const Depth& depth, int64_t first_panel,
                              int64_t panels, uint32_t* out) {
  constexpr int64_t kTogether = kWidth == kRows ? 4 : 1;  // panels: a cache line of a row
  const int64_t panel_words = kWidth * depth.words;
  for (int64_t p = 0; p < panels;) {
    const int64_t w = (first_panel + p) * kWidth;
    uint32_t* to = out + p * panel_words;
    if (x.k_contiguous) {
      pack_k_contiguous<kWidth>(x.data + w * x.stride + depth.first, x.stride, x.width - w,
                                depth.count, to);
      ++p;
    } else {
      const int64_t group = std::min(kTogether, panels - p);
      pack_w_contiguous<kWidth>(x.data + depth.first * x.stride + w, x.stride, x.width - w,
                                depth.count, group, panel_words, to);
      p += group;
    }
  }
}

// What happens to the sums of a tile: C = alpha * sums + add + bias.
struct TileEnd {
  float alpha;
  const float* add;  // or null
  int64_t add_stride;
  const bf16* add_bf16;  // or null; of the same stride
  float* c_f32;          // one of the two
  bf16* c_bf16;
  int64_t c_stride;
  const float* bias;   // or null
  int64_t rows, cols;  // of the tile that exist
};

TUTTI_AVX512_INLINE __m512 multiply_add(__m512i a, __m512i b, __m512 sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

TUTTI_AVX512_INLINE void tile(int64_t words, const uint32_t* a, const uint32_t* b,
                              const TileEnd& end) {
  constexpr int kVectors = kCols / kLanes;
  // The tile of C arrives from memory while the sums are made.
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
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  // NOLINTNEXTLINE(modernize-loop-convert): the index form takes the unroll pragma
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < words; ++k, a += kRows, b += kCols) {
    const __m512i b0 = _mm512_loadu_si512(b);
    const __m512i b1 = _mm512_loadu_si512(b + 16);
    const __m512i b2 = _mm512_loadu_si512(b + 32);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(a[i]));
      sum[i][0] = multiply_add(x, b0, sum[i][0]);
      sum[i][1] = multiply_add(x, b1, sum[i][1]);
      sum[i][2] = multiply_add(x, b2, sum[i][2]);
    }
  }
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
  for (int i = 0; i < kRows; ++i) {
    if (i < end.rows) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        __m512 value = _mm512_fmadd_ps(sum[i][j], alpha, bias[j]);
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

// The tiles of row panels [row_panel, +row_panels) and column panels [col_panel, +col_panels); a
// and b are their packed panels. The inner loop walks the columns when `columns_inside`.
TUTTI_AVX512 void tiles(const Product& x, const Depth& depth, int64_t row_panel, int64_t row_panels,
                        const uint32_t* a, int64_t col_panel, int64_t col_panels, const uint32_t* b,
                        bool columns_inside) {
  const int64_t outer = columns_inside ? row_panels : col_panels;
  const int64_t inner = columns_inside ? col_panels : row_panels;
  for (int64_t p = 0; p < outer; ++p) {
    for (int64_t q = 0; q < inner; ++q) {
      const int64_t ip = columns_inside ? p : q;
      const int64_t jp = columns_inside ? q : p;
      const int64_t i = (row_panel + ip) * kRows;
      const int64_t j = (col_panel + jp) * kCols;
      TileEnd end{};
      end.alpha = x.alpha;
      end.rows = std::min<int64_t>(kRows, x.m - i);
      end.cols = std::min<int64_t>(kCols, x.n - j);
      end.bias = depth.is_last && x.bias != nullptr ? x.bias + j : nullptr;
      float* sums = nullptr;
      int64_t sums_stride = x.c.ld;
      if (x.sums != nullptr) {
        sums = x.sums + i * x.n + j;
        sums_stride = x.n;
      } else if (x.c.dtype == DType::f32) {
        sums = static_cast<float*>(x.c.data) + i * x.c.ld + j;
      }
      if (depth.is_first && x.accumulate && x.c.dtype != DType::f32) {
        end.add_bf16 = static_cast<const bf16*>(x.c.data) + i * x.c.ld + j;
        end.add_stride = x.c.ld;
      } else if (!depth.is_first || x.accumulate) {
        end.add = sums;
        end.add_stride = sums_stride;
      }
      if (x.c.dtype == DType::f32 || !depth.is_last) {
        end.c_f32 = sums;
        end.c_stride = sums_stride;
      } else {
        end.c_bf16 = static_cast<bf16*>(x.c.data) + i * x.c.ld + j;
        end.c_stride = x.c.ld;
      }
      tile(depth.words, a + ip * kRows * depth.words, b + jp * kCols * depth.words, end);
    }
  }
}

int64_t round_up(int64_t value, int64_t grain) { return (value + grain - 1) / grain * grain; }

void multiply(CpuStream& stream, Product x, const Vector& bias) {
  const int64_t row_panels = (x.m + kRows - 1) / kRows;
  const int64_t col_panels = (x.n + kCols - 1) / kCols;
  const int64_t all_words = (x.k + 1) / 2;
  const int64_t passes = (all_words + kMaxWords - 1) / kMaxWords;
  const int64_t words = (all_words + passes - 1) / passes;
  const bool split_columns = x.n >= x.m;

  const int64_t split_panels = split_columns ? col_panels : row_panels;
  const int64_t split_width = split_columns ? kCols : kRows;
  const int64_t block =
      std::clamp<int64_t>(kBlockBytes / (split_width * words * 4), 1, split_panels);
  const int64_t shared_bytes =
      round_up((split_columns ? row_panels * kRows : col_panels * kCols) * words * 4, kAlign);
  const int64_t own_bytes = round_up(block * split_width * words * 4, kAlign);
  const int64_t sums_bytes =
      passes > 1 && x.c.dtype != DType::f32 ? round_up(x.m * x.n * 4, kAlign) : 0;
  const int64_t bias_bytes = round_up(bias ? x.n * 4 : 0, kAlign);
  char* scratch = static_cast<char*>(
      stream.scratch(shared_bytes + own_bytes * stream.threads() + sums_bytes + bias_bytes));
  auto* shared = reinterpret_cast<uint32_t*>(scratch);
  char* own_base = scratch + shared_bytes;
  char* after = own_base + own_bytes * stream.threads();
  if (sums_bytes > 0) x.sums = reinterpret_cast<float*>(after);
  if (bias && bias.dtype == DType::bf16) {
    auto* wide = reinterpret_cast<float*>(after + sums_bytes);
    convert_elements(bias.as<bf16>(), wide, x.n);
    x.bias = wide;
  } else if (bias) {
    x.bias = bias.as<float>();
  }

  for (int64_t pass = 0; pass < passes; ++pass) {
    Depth depth{};
    depth.first = pass * words * 2;
    depth.count = std::min(words * 2, x.k - depth.first);
    depth.words = (depth.count + 1) / 2;
    depth.is_first = pass == 0;
    depth.is_last = pass == passes - 1;
    if (split_columns) {
      parallel_ranges(row_panels, 4, [&](int64_t begin, int64_t end, int) {
        pack_panels<kRows>(x.a, depth, begin, end - begin, shared + begin * kRows * depth.words);
      });
    } else {
      parallel_ranges(col_panels, 1, [&](int64_t begin, int64_t end, int) {
        pack_panels<kCols>(x.b, depth, begin, end - begin, shared + begin * kCols * depth.words);
      });
    }
    parallel_ranges(split_panels, 1, [&](int64_t begin, int64_t end, int thread) {
      auto* own = reinterpret_cast<uint32_t*>(own_base + own_bytes * thread);
      for (int64_t first = begin; first < end; first += block) {
        const int64_t count = std::min(block, end - first);
        if (split_columns) {
          pack_panels<kCols>(x.b, depth, first, count, own);
          tiles(x, depth, 0, row_panels, shared, first, count, own, true);
        } else {
          pack_panels<kRows>(x.a, depth, first, count, own);
          tiles(x, depth, first, count, own, 0, col_panels, shared, false);
        }
      }
    });
  }
}

}  // namespace

bool gemm_bf16_possible(const GemmArgs& args) {
  return use_bf16_dot() && args.a.dtype == DType::bf16;
}

// Either side may be the shared one; an own block is kBlockBytes or a single panel, whichever is
// more.
int64_t gemm_bf16_scratch_bytes(const CpuStream& stream, const GemmArgs& args) {
  const int64_t m = args.c.rows;
  const int64_t n = args.c.cols;
  const int64_t k = args.transpose_a ? args.a.rows : args.a.cols;
  const int64_t words = std::min((k + 1) / 2, kMaxWords);
  const int64_t shared =
      round_up(std::min(round_up(m, kCols), round_up(n, kCols)) * words * 4, kAlign);
  const int64_t own = round_up(std::max(kBlockBytes, kCols * words * 4), kAlign);
  const int64_t sums =
      (k + 1) / 2 > kMaxWords && args.c.dtype != DType::f32 ? round_up(m * n * 4, kAlign) : 0;
  return shared + own * stream.threads() + sums + round_up(args.bias ? n * 4 : 0, kAlign);
}

void gemm_bf16(CpuStream& stream, const GemmArgs& args) {
  Product x{};
  x.m = args.c.rows;
  x.n = args.c.cols;
  x.k = args.transpose_a ? args.a.rows : args.a.cols;
  x.a = {args.a.as<bf16>(), x.m, args.a.ld, !args.transpose_a};
  x.b = {args.b.as<bf16>(), x.n, args.b.ld, args.transpose_b};
  x.c = args.c;
  x.accumulate = args.beta != 0;
  x.alpha = args.alpha;
  multiply(stream, x, args.bias);
}

}  // namespace tutti::engine
