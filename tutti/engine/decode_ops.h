// Matrix products for decoding, with few rows and therefore bound by reading the weights: part of
// the table in ops.h, whose rules apply here. CPU only.
#pragma once

#include <cstdint>

#include "tutti/base/packed_weights.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Weights [rows, columns] in the layout of base/packed_weights.h.
struct PackedMatrix {
  PackKind kind = PackKind::int8;
  int64_t rows = 0;
  int64_t columns = 0;
  void* data = nullptr;

  explicit operator bool() const { return data != nullptr; }
  PackedLayout layout() const { return packed_layout(kind, rows, columns); }
};

// C[m,n] = alpha A B^T + bias, summed in f32, rounded once. B is `packed`, or `weight` as stored.
// For up to kFewRows rows of A, B is read once from memory, and the bits of an element of C do not
// depend on the number of rows and threads. With more rows B is unpacked to bf16, block by block,
// and multiplied as by gemm. record "decode_gemm": dims (m, n, k); flops 2*m*n*k; bytes: A, B, C,
// bias.
inline constexpr int64_t kFewRows = 24;
struct DecodeGemmArgs {
  Matrix a;                  // [m, k] f32 or bf16
  PackedMatrix packed = {};  // [n, k]
  Matrix weight = {};        // [n, k] bf16 or f32, if packed is empty
  Matrix c;                  // [m, n] f32 or bf16
  Vector bias = {};          // [n] f32 or bf16
  float alpha = 1;           // 1 with a bias
};

}  // namespace tutti::engine
