// The inner loop of gemm_bf16: one tile of C, at most 8 x 48, held in registers over all of k.
#pragma once

#include <cstdint>

#include "tutti/base/dtype.h"
#include "tutti/engine/cpu/gemm_bf16_pack.h"

namespace tutti::engine {

// The rows of A that a tile multiplies: word k of row i (two consecutive elements) is at row[i] + k
// * step_bytes, so that A is read either packed or, if its k are contiguous, in place. Rows beyond
// the edge repeat a valid row; their sums are not stored.
struct TileRows {
  const char* row[kPanelRows];
  int64_t step_bytes;
  bool odd;  // only the first element of the last word belongs to A
};

// The product that a tile accumulates: `words` words of k; b is a panel of pack_columns.
struct TileTerm {
  int64_t words;
  TileRows a;
  const uint32_t* b;
};

// Epilogue of a tile: C = alpha * sums + add + bias.
struct TileEnd {
  float alpha;
  const float* add;  // or null
  int64_t add_stride;
  const bf16* add_bf16;  // or null; with the same stride
  float* c_f32;          // exactly one of c_f32 and c_bf16 is set
  bf16* c_bf16;
  int64_t c_stride;
  const float* bias;   // or null
  int64_t rows, cols;  // valid part of the tile
  bool transposed;     // element (i, j) is at [j * stride + i]: only f32 without a bias
};

// Needs AVX512_BF16.
void multiply_tile(const TileTerm& term, const TileEnd& end);

}  // namespace tutti::engine
