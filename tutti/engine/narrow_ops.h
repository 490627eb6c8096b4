// Matrix products with operands below 16 bits: part of the table in ops.h, whose rules apply here.
// base/narrow_format.h defines the formats, their layout and the choice of scales.
//
// A product reads both operands with the inner dimension contiguous, so that the three products of
// a linear layer y = x W^T take
//   forward          x, W
//   input gradient   dy, and W transposed
//   weight gradient  dy and x, both transposed
// The CPU encodes as the formats define and emulates the products: it decodes the codes, multiplies
// and accumulates in f32. It is the reference for other backends.
#pragma once

#include <cstdint>

#include "tutti/base/narrow_format.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// One scale per tensor, no block scales.
inline bool per_tensor(NarrowKind kind) {
  return kind == NarrowKind::e4m3 || kind == NarrowKind::e5m2;
}

// A matrix [rows, columns] in `kind`: narrow_layout(kind, rows, columns).bytes at `data`, which is
// aligned to 256.
struct NarrowMatrix {
  NarrowKind kind = NarrowKind::e4m3;
  int64_t rows = 0;
  int64_t columns = 0;
  void* data = nullptr;

  NarrowLayout layout() const { return narrow_layout(kind, rows, columns); }
};

// The largest magnitude (amax) of a tensor. NaN counts as larger than infinity.
struct Magnitude {
  Vector value = {};   // [1] f32; empty: not stored
  bool known = false;  // already computed; else the first operation that needs it stores it
};
// The amax that the producer of a tensor has stored.
inline Magnitude known_magnitude(const Vector& value) { return {value, bool(value)}; }

// out = x, or x transposed. With `transposed` (and not transpose) both: out = x and transposed = x
// transposed, of out's kind, as two calls would; with per-tensor scales a single pass over x, after
// the one for its amax, writes both. Rounds to nearest even, or stochastically if `stochastic`:
// element (r, j) of x then uses the Philox word of (key, first_row + r, j), or of (key, first_row +
// rows[r], j), as dropout does, so that the rounding of a value does not depend on the shape of the
// call. Writes all of `out` except the padding of block scales. Formats with a per-tensor scale
// need x's amax first; if it is known, x is read once. record "quantize": dims (R, C, transpose; 2
// for both); bytes: x once and the payloads.
struct QuantizeArgs {
  Matrix x;  // [R, C] f32 or bf16
  bool transpose = false;
  NarrowMatrix out = {};         // [R, C], or [C, R]
  NarrowMatrix transposed = {};  // [C, R], optional: null data
  bool stochastic = false;
  uint64_t key = 0;
  int64_t first_row = 0;
  Vector rows = {};     // [R] i32, optional
  Magnitude amax = {};  // of x; unused by formats without a per-tensor scale
};

// C[m,n] = A B^T + beta C, with the operands' scales; beta and bias as in gemm. Both operands have
// the same kind, or each is e4m3 or e5m2. With fast_sums a device's matrix units may accumulate in
// fewer bits than f32, where that is faster. record "narrow_gemm": dims (m, n, k); flops 2*m*n*k;
// bytes: the payloads of both operands, C (twice with beta), bias.
struct NarrowGemmArgs {
  NarrowMatrix a;  // [m, k]
  NarrowMatrix b;  // [n, k]
  Matrix c;        // [m, n] f32 or bf16
  float beta = 0;
  Vector bias = {};  // [n] f32 or bf16
  bool fast_sums = false;
};

}  // namespace tutti::engine
