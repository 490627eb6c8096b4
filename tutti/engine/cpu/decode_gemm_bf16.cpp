// A tile is a few rows of A times a few rows of weights. The vector of sums of an element of C
// accumulates groups of 32 columns in the same order in every tile, so that the shape of a tile
// does not change the bits. With packed weights, the pairs of a group are summed as codes, and the
// sums are multiplied by the group's scale.
#include "tutti/engine/cpu/decode_gemm_bf16.h"

#include <algorithm>
#include <cstring>

#include "tutti/engine/cpu/gemm_bf16_avx512.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/parallel.h"

namespace tutti::engine {
namespace {

// A's rows, zero-padded to complete blocks of columns.
struct FewRows {
  const bf16* a;
  int64_t stride;
  const DecodeGemmArgs* args;
};

TUTTI_AVX512_INLINE __m512 add_pairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// A row of weights: group(g) is its columns [32 g, 32 g + 32) as bf16.
struct StoredRow {
  static constexpr bool kScaled = false;
  const bf16* data;
  int64_t columns;

  TUTTI_AVX512_INLINE void bind(const DecodeGemmArgs& args, int64_t row) {
    data = args.weight.row<bf16>(row);
    columns = args.weight.cols;
  }
  TUTTI_AVX512_INLINE __m512i group(int64_t g) const {
    return _mm512_loadu_si512(data + g * kPackGroup);
  }
  // The incomplete last group.
  TUTTI_AVX512_INLINE __m512i last_group(int64_t g) const {
    return _mm512_maskz_loadu_epi16(low_bits(columns - g * kPackGroup, 32), data + g * kPackGroup);
  }
};

struct PackedRow {
  static constexpr bool kScaled = true;
  const uint8_t* codes;
  const bf16* scales;

  TUTTI_AVX512_INLINE void bind(const DecodeGemmArgs& args, int64_t row) {
    const PackedLayout layout = args.packed.layout();
    const auto* data = static_cast<const uint8_t*>(args.packed.data);
    codes = data + row * layout.row_bytes;
    scales = reinterpret_cast<const bf16*>(data + layout.scales_offset) + row * layout.groups;
  }
  // A bf16 in the upper half of a word is that number in f32.
  TUTTI_AVX512_INLINE __m512 scale(int64_t g) const {
    int16_t bits;
    std::memcpy(&bits, scales + g, sizeof bits);
    return _mm512_castsi512_ps(_mm512_maskz_set1_epi16(0xAAAAAAAAU, bits));
  }
};

struct Int8Row : PackedRow {
  TUTTI_AVX512_INLINE __m512i group(int64_t g) const {
    const auto half = [&](int64_t first) TUTTI_AVX512 {
      const auto* from = reinterpret_cast<const __m128i*>(codes + g * kPackGroup + first);
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
    };
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(half(kLanes), half(0)));
  }
};

struct Int4Row : PackedRow {
  // Lane i of the table: i % 16 - 8 as bf16. A permutation uses five bits of an index, so the table
  // repeats to ignore the fifth, which belongs to the next group.
  TUTTI_AVX512_INLINE static __m512i table() {
    static constexpr uint16_t kCodes[16] = {0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040,
                                            0xC000, 0xBF80, 0x0000, 0x3F80, 0x4000, 0x4040,
                                            0x4080, 0x40A0, 0x40C0, 0x40E0};
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(kCodes)));
  }
  TUTTI_AVX512_INLINE __m512i group(int64_t g) const {
    const __m512i block = _mm512_loadu_si512(codes + g / 4 * (kPackBlock / 2));
    const __m512i code = _mm512_srl_epi16(block, _mm_cvtsi64_si128(g % 4 * 4));
    return _mm512_permutexvar_epi16(code, table());
  }
};

template <int m, int n, typename Row>
TUTTI_AVX512_INLINE void add_group(const FewRows& few, const bf16* a, int64_t g,
                                   const __m512i (&b)[n], const Row* rows, __m512 (&sums)[m][n]) {
  __m512 scale[n];
  if constexpr (Row::kScaled) {
#pragma GCC unroll 8
    for (int j = 0; j < n; ++j) scale[j] = rows[j].scale(g);
  }
#pragma GCC unroll 8
  for (int i = 0; i < m; ++i) {
    const __m512i x = _mm512_loadu_si512(a + i * few.stride + g * kPackGroup);
#pragma GCC unroll 8
    for (int j = 0; j < n; ++j) {
      if constexpr (Row::kScaled) {
        sums[i][j] = _mm512_fmadd_ps(add_pairs(_mm512_setzero_ps(), x, b[j]), scale[j], sums[i][j]);
      } else {
        sums[i][j] = add_pairs(sums[i][j], x, b[j]);
      }
    }
  }
}

TUTTI_AVX512_INLINE void put(const DecodeGemmArgs& args, int64_t i, int64_t j, float sum) {
  sum *= args.alpha;
  if (args.bias) {
    sum +=
        args.bias.dtype == DType::bf16 ? to_f32(args.bias.as<bf16>()[j]) : args.bias.as<float>()[j];
  }
  if (args.c.dtype == DType::bf16) {
    args.c.row<bf16>(i)[j] = to_bf16(sum);
  } else {
    args.c.row<float>(i)[j] = sum;
  }
}

template <int m, int n, typename Row>
TUTTI_AVX512_INLINE void tile(const FewRows& few, int64_t i, int64_t j) {
  const bf16* a = few.a + i * few.stride;
  Row rows[n];
  __m512 sums[m][n];
#pragma GCC unroll 8
  for (int c = 0; c < n; ++c) {
    rows[c].bind(*few.args, j + c);
#pragma GCC unroll 8
    for (int r = 0; r < m; ++r) sums[r][c] = _mm512_setzero_ps();
  }
  const int64_t columns = few.args->a.cols;
  const int64_t whole =
      Row::kScaled ? (columns + kPackGroup - 1) / kPackGroup : columns / kPackGroup;
  for (int64_t g = 0; g < whole; ++g) {
    __m512i b[n];
#pragma GCC unroll 8
    for (int c = 0; c < n; ++c) b[c] = rows[c].group(g);
    add_group<m, n>(few, a, g, b, rows, sums);
  }
  if constexpr (!Row::kScaled) {
    if (whole * kPackGroup < columns) {
      __m512i b[n];
#pragma GCC unroll 8
      for (int c = 0; c < n; ++c) b[c] = rows[c].last_group(whole);
      add_group<m, n>(few, a, whole, b, rows, sums);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < m; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < n; ++c) put(*few.args, i + r, j + c, _mm512_reduce_add_ps(sums[r][c]));
  }
}

// All rows of A times n rows of weights from row j on.
template <int n, typename Row>
TUTTI_AVX512_INLINE void all_rows(const FewRows& few, int64_t j) {
  const int64_t m = few.args->a.rows;
  int64_t i = 0;
  for (; i + 6 <= m; i += 6) tile<6, n, Row>(few, i, j);
  for (; i + 4 <= m; i += 4) tile<4, n, Row>(few, i, j);
  for (; i + 2 <= m; i += 2) tile<2, n, Row>(few, i, j);
  if (i < m) tile<1, n, Row>(few, i, j);
}

template <typename Row>
TUTTI_AVX512 void weight_rows(const FewRows& few, int64_t begin, int64_t end) {
  int64_t j = begin;
  if (few.args->a.rows == 1) {  // wider tiles, as one row has few sums
    for (; j + 8 <= end; j += 8) tile<1, 8, Row>(few, 0, j);
  }
  for (; j + 4 <= end; j += 4) all_rows<4, Row>(few, j);
  for (; j < end; ++j) all_rows<1, Row>(few, j);
}

}  // namespace

bool decode_gemm_bf16_possible(const DecodeGemmArgs& args) {
  return use_bf16_dot() && args.a.dtype == DType::bf16;
}

void decode_gemm_bf16(CpuStream& stream, const DecodeGemmArgs& args) {
  const int64_t m = args.a.rows;
  const int64_t k = args.a.cols;
  const int64_t stride = (k + kPackBlock - 1) / kPackBlock * kPackBlock;
  auto* a = static_cast<bf16*>(stream.scratch(m * stride * int64_t{sizeof(bf16)}));
  for (int64_t i = 0; i < m; ++i) {
    std::copy_n(args.a.row<bf16>(i), k, a + i * stride);
    std::fill_n(a + i * stride + k, stride - k, bf16{});
  }
  const FewRows few = {a, stride, &args};
  parallel_ranges(args.c.cols, 8, [&](int64_t begin, int64_t end, int) {
    if (!args.packed) {
      weight_rows<StoredRow>(few, begin, end);
    } else if (args.packed.kind == PackKind::int8) {
      weight_rows<Int8Row>(few, begin, end);
    } else {
      weight_rows<Int4Row>(few, begin, end);
    }
  });
}

}  // namespace tutti::engine
