// The product of the host stand-in for cuBLASLt (cublaslt.cpp).
#pragma once

#include <library_types.h>

#include <cstdint>

namespace tutti::engine::on_host {

// The order in which the products of an element are summed: each gives different bits.
enum class SumOrder : uint8_t { forwards, backwards, halves };

// Column-major: D[m,n] = alpha * scales * op(A)[m,k] op(B)[k,n] + beta * C[m,n] + bias[m], summed
// in f32. C may be D, and is not read if beta is 0.
struct HostProduct {
  struct Operand {
    const void* data = nullptr;
    cudaDataType_t type = CUDA_R_32F;
    int64_t ld = 0;
    bool transposed = false;       // op is the transpose
    const float* scale = nullptr;  // null: 1
  };
  int64_t m = 0, n = 0, k = 0;
  Operand a, b, c;
  void* d = nullptr;
  cudaDataType_t d_type = CUDA_R_32F;
  int64_t d_ld = 0;
  const void* bias = nullptr;  // null: none
  cudaDataType_t bias_type = CUDA_R_32F;
  float alpha = 1, beta = 0;
  bool tf32 = false;  // operands are rounded to 10 bits of mantissa
  SumOrder order = SumOrder::forwards;
  bool coarse = false;  // sums are rounded to 10 bits of mantissa
};
void multiply(const HostProduct& product);

}  // namespace tutti::engine::on_host
