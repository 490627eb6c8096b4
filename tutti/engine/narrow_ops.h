// Products of operands below 16 bits: part of the table in ops.h, whose rules hold here too. The
// formats, where their parts lie and how scales are chosen: base/narrow_format.h.
//
// A product reads both operands with its inner dimension along their rows, so that the three
// products of a linear layer y = x W^T take
//   forward          x, W
//   input gradient   dy, and W transposed
//   weight gradient  dy and x, both transposed
// On the CPU the codes are those of the formats' definitions and the products emulate: codes are
// decoded, multiplied and added up in f32. That is the oracle of other backends.
#pragma once

#include <cstdint>

#include "tutti/base/narrow_format.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// One scale for the whole tensor and none for blocks.
inline bool per_tensor(NarrowKind kind) {
  return kind == NarrowKind::e4m3 || kind == NarrowKind::e5m2;
}

// A matrix [rows, columns] in `kind`, in narrow_layout(kind, rows, columns).bytes at `data`, which
// is a multiple of 256.
struct NarrowMatrix {
  NarrowKind kind = NarrowKind::e4m3;
  int64_t rows = 0;
  int64_t columns = 0;
  void* data = nullptr;

  NarrowLayout layout() const { return narrow_layout(kind, rows, columns); }
};

// Where the largest magnitude of a tensor is kept. NaN counts as larger than infinity.
struct Magnitude {
  Vector place = {};   // [1] f32; empty: it is not kept
  bool known = false;  // computed already; false: the first operation that needs it stores it
};
// Of a tensor whose maker has left it there.
inline Magnitude known_magnitude(const Vector& place) { return {place, bool(place)}; }

// out = x, or x transposed. With `turned` (and not transpose) both: out = x and turned = x
// transposed, of out's kind, the same as two calls; one pass over x after the one for its largest
// magnitude makes both where scales are of the tensor. Rounds to nearest even, or stochastically
// where asked: element (r, j) of x then uses the Philox word of (key, first_row + r, j), or of
// (key, first_row + rows[r], j), as dropout does, so that the rounding of a value does not depend
// on the shape of the call. All of `out` is written but the padding of block scales. Formats with a
// scale of the tensor find x's largest magnitude first; where it is known x is read once. record
// "quantize": dims (R, C, transpose; 2 for both); bytes: x once and the payloads.
struct QuantizeArgs {
  Matrix x;  // [R, C] f32 or bf16
  bool transpose = false;
  NarrowMatrix out = {};     // [R, C], or [C, R]
  NarrowMatrix turned = {};  // [C, R], optional: without data
  bool stochastic = false;
  uint64_t key = 0;
  int64_t first_row = 0;
  Vector rows = {};     // [R] i32, optional
  Magnitude amax = {};  // of x; formats without a scale of the tensor leave it alone
};

// C[m,n] = A B^T + beta C, with the operands' scales; beta and bias as those of gemm. The kinds are
// equal, or both of e4m3 and e5m2. With fast_sums a device's matrix units may add up products in
// fewer bits than f32 has, where that is faster. record "narrow_gemm": dims (m, n, k); flops
// 2*m*n*k; bytes: the payloads of both operands, C (twice with beta), bias.
struct NarrowGemmArgs {
  NarrowMatrix a;  // [m, k]
  NarrowMatrix b;  // [n, k]
  Matrix c;        // [m, n] f32 or bf16
  float beta = 0;
  Vector bias = {};  // [n] f32 or bf16
  bool fast_sums = false;
};

}  // namespace tutti::engine
