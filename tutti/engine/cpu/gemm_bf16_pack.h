// Operands of gemm_bf16 in the order in which its tiles read them. Words are 32 bits: two bf16 that
// follow each other in k, which is what VDPBF16PS multiplies. A panel holds 8 rows of A or 48
// columns of B as [words][8 or 48], zero beyond the edges and after an odd k.
#pragma once

#include <cstdint>

#include "tutti/base/dtype.h"

namespace tutti::engine {

inline constexpr int kPanelRows = 8;
inline constexpr int kPanelCols = 48;

// One operand as it is stored: element (w, k), w a row of A or a column of B.
struct PackOperand {
  const bf16* data;
  int64_t width;   // number of w
  int64_t stride;  // elements between consecutive k (k_contiguous: between consecutive w)
  bool k_contiguous;
};

// A range of k that one pass over C handles.
struct PackDepth {
  int64_t first, count, words;
  bool is_first, is_last;
};

// `panels` panels from `first_panel` on, one after the other into `out`. They need AVX512_BF16.
void pack_rows(const PackOperand& x, const PackDepth& depth, int64_t first_panel, int64_t panels,
               uint32_t* out);
void pack_columns(const PackOperand& x, const PackDepth& depth, int64_t first_panel, int64_t panels,
                  uint32_t* out);

}  // namespace tutti::engine
