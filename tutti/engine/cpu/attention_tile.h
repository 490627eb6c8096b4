// Tiles of causal attention: packing, products and the elementwise passes between them, for up to
// kTile queries by kTile keys. Forward, backward and decode are loops over these functions; no
// matrix of scores larger than a tile is stored.
//
// Packed operands are arrays of 32-bit words. A word holds `elements_per_word` consecutive elements
// along the depth (the summed dimension): one f32, or two bf16, which one VDPBF16PS lane
// multiplies. In a product C[m,n] (+)= A[m,k] B[k,n]
//   A is read word by word with two strides, so a matrix and its transpose are equally fast;
//   B is [k words][n].
// D is the head size, padded_columns(D) the next multiple of 16; padding is zero.
//
// The table is chosen by element type and instruction set (isa.h):
//   f32, and bf16 without dot products:  words of one f32  (attention_tile.cpp, Highway)
//   bf16 with dot products:              words of two bf16 (attention_tile_bf16.cpp, AVX512-BF16)
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/base/dtype.h"

namespace tutti::engine {

inline constexpr int64_t kTile = 64;
inline constexpr int64_t kSumLanes = 16;  // partial sums of a row of probabilities

inline constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline constexpr int64_t padded_columns(int64_t columns) { return round_up(columns, 16); }

// Rows (at most kTile) of a tensor in memory.
struct TileSource {
  const void* data = nullptr;
  int64_t ld = 0;  // elements from row to row
  int64_t rows = 0;
  int64_t cols = 0;  // D
};

// What a product may skip on the diagonal, where query index = key index. Skipped columns of C keep
// their content; skipped depth is zero in A.
enum class Skip { nothing, columns_after_row, depth_after_row, depth_before_row };

struct TileProduct {
  float* c = nullptr;  // [rows, cols]
  int64_t ldc = 0;
  const uint32_t* a = nullptr;
  int64_t a_row = 0;    // words from row to row
  int64_t a_depth = 0;  // words from depth word to depth word
  const uint32_t* b = nullptr;
  int64_t ldb = 0;
  int64_t rows = 0;   // at most kTile
  int64_t cols = 0;   // a multiple of 16
  int64_t depth = 0;  // in words
  bool accumulate = false;
  Skip skip = Skip::nothing;
};

// Row r attends to keys [hidden(r), seen_end(r)) of the tile, which may be empty.
struct TileMask {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_row_sees = 0;  // keys up to the diagonal in row 0, one more in each further row
  const int32_t* starts = nullptr;  // [rows], optional: index in the sequence of a row's first key
  int64_t first_key = 0;            // index in the sequence of the tile's first key

  int64_t hidden(int64_t row) const {
    return starts == nullptr ? 0 : std::clamp<int64_t>(starts[row] - first_key, 0, cols);
  }
  int64_t seen_end(int64_t row) const { return std::clamp<int64_t>(first_row_sees + row, 0, cols); }
};

// One step of the online softmax (Milakov & Gimelshein 2018): raises the running maxima, rescales
// sums and output to them, and writes p = 2^(log2_scale * (s - max)), zero where masked.
struct SoftmaxTile {
  TileMask mask;
  const float* scores = nullptr;  // [rows, kTile]: unscaled
  float log2_scale = 0;           // scale * log2(e), positive
  float* row_max = nullptr;       // [rows]: unscaled; -infinity at first
  float* row_sum = nullptr;       // [rows, kSumLanes]
  float* out = nullptr;           // [rows, out_cols], leading dimension out_cols
  int64_t out_cols = 0;
  // [rows, kTile / elements_per_word] words along the keys; may be `scores` if a word is one
  // element.
  uint32_t* p = nullptr;
};

// p = 2^(log2_scale * s - log2_lse), ds = p * (dp - delta), both zero where masked.
// By columns: [kTile / elements_per_word][kTile] words along the queries; by rows: [kTile][kTile /
// elements_per_word] words along the keys. If a word is one element, the two are the same array:
// only ds_by_columns is written, and the outputs may be the inputs.
struct GradientTile {
  TileMask mask;
  const float* scores = nullptr;  // [rows, kTile]
  const float* dp = nullptr;      // [rows, kTile]
  float log2_scale = 0;
  const float* log2_lse = nullptr;  // [rows]
  const float* delta = nullptr;     // [rows]
  // With capped scores cap_slope * s is the tanh, and ds is also multiplied by its derivative, 1 -
  // (cap_slope * s)^2.
  float cap_slope = 0;
  uint32_t* p_by_columns = nullptr;
  uint32_t* ds_by_columns = nullptr;
  uint32_t* ds_by_rows = nullptr;
};

struct TileOps {
  int64_t elements_per_word = 1;
  // [rows][padded D words]: operand A of products over D.
  void (*pack_rows)(const TileSource& source, uint32_t* out) = nullptr;
  // [padded D words][kTile]: operand B of products over D. spare: kTile * padded D words.
  void (*pack_columns)(const TileSource& source, uint32_t* spare, uint32_t* out) = nullptr;
  // [row words][padded D]: operand B of products over rows.
  void (*pack_depth)(const TileSource& source, uint32_t* out) = nullptr;
  void (*multiply)(const TileProduct& product) = nullptr;
  // s = tanh(cap_slope * s) / cap_slope of scores [rows, kTile].
  void (*cap)(float* scores, int64_t rows, float cap_slope) = nullptr;
  void (*softmax)(const SoftmaxTile& tile) = nullptr;
  void (*gradient)(const GradientTile& tile) = nullptr;
  // out[r, 0:cols] = factors[r] * tile[r, 0:cols], in the table's element type.
  void (*store)(const float* tile, int64_t tile_ld, const float* factors, int64_t rows,
                int64_t cols, void* out, int64_t out_ld) = nullptr;
  // dots[r] = sum over columns of a[r] * b[r].
  void (*row_dots)(const TileSource& a, const TileSource& b, float* dots) = nullptr;
};

const TileOps& tile_ops(DType dtype);
// The table for bf16 if use_bf16_dot(); `base` provides store and row_dots.
TileOps bf16_dot_tile_ops(const TileOps& base);

}  // namespace tutti::engine
