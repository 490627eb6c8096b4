// Packing of the operands of gemm_bf16 into the order in which its tiles read them. A word is 32
// bits: two bf16 consecutive in k, the pair that VDPBF16PS multiplies. A panel holds 8 rows of A or
// 48 columns of B as [words][8 or 48], with zeros beyond the edges and after an odd k.
#pragma once

#include <cstdint>

#include "tutti/base/dtype.h"

namespace tutti::engine {

inline constexpr int kPanelRows = 8;
inline constexpr int kPanelCols = 48;

// An unpacked operand: element (w, k), where w is a row of A or a column of B.
struct PackOperand {
  const bf16* data;
  int64_t width;   // number of w
  int64_t stride;  // elements between consecutive k (k_contiguous: between consecutive w)
  bool k_contiguous;
};

// The range of k of one pass over C.
struct PackDepth {
  int64_t first, count, words;
  bool is_first, is_last;
};

// Pack `panels` panels from `first_panel` on, one after the other, into `out`. Need AVX512_BF16.
void pack_rows(const PackOperand& x, const PackDepth& depth, int64_t first_panel, int64_t panels,
               uint32_t* out);
void pack_columns(const PackOperand& x, const PackDepth& depth, int64_t first_panel, int64_t panels,
                  uint32_t* out);

}  // namespace tutti::engine
