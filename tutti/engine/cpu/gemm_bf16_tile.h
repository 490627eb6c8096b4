// The inner loop of gemm_bf16: one tile of C, at most 8 x 48, held in registers over all of k.
#pragma once

#include <cstdint>

#include "tutti/base/dtype.h"
#include "tutti/engine/cpu/gemm_bf16_pack.h"

namespace tutti::engine {

// The rows of A that a tile multiplies: word k of row i (two consecutive elements) is at row[i] +
// k * step_bytes, so that A is read packed, or where it lies when its k are contiguous. Rows that
// do not exist repeat one that does; their sums are not stored.
struct TileRows {
  const char* row[kPanelRows];
  int64_t step_bytes;
  bool odd;  // of the last word only the first element belongs to A
};

// The product that a tile sums up: `words` of k; b is a panel of pack_columns.
struct TileTerm {
  int64_t words;
  TileRows a;
  const uint32_t* b;
};

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
  bool transposed;     // element (i, j) is at [j * stride + i]: f32 without a bias only
};

// Needs AVX512_BF16.
void multiply_tile(const TileTerm& term, const TileEnd& end);

}  // namespace tutti::engine
