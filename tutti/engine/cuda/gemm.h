// Matrix products by cuBLASLt. Row-major C = A B is computed as the column-major product
// C^T = B^T A^T, whose operands are the same memory.
//
// The algorithm of a product is the fastest of the library's candidates, measured on the first call
// with its sizes (gemm_tuning.h). Only algorithms that keep partial sums in f32 are requested.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tutti/engine/cuda/gemm_tuning.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

class CudaStream;

// C[m,n] = alpha * A * B (* a_scale * b_scale) + beta * C + bias for the library: pointers and
// layouts of row-major operands, with the meaning that ops.h states.
struct GemmProduct {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  int64_t m = 0, n = 0, k = 0;
  cudaDataType_t a_type = CUDA_R_32F, b_type = CUDA_R_32F;
  DType c_type = DType::f32;
  int64_t a_ld = 0, b_ld = 0, c_ld = 0;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 0;
  Vector bias = {};
  // In device memory, for 8-bit operands.
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
  bool fast_sums = false;  // for these: accumulate in the precision that is fastest

  Matrix result() const { return {c, c_type, m, n, c_ld}; }
};

class CudaGemm {
 public:
  explicit CudaGemm(CudaStream& stream);
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  // m, n and k must not be zero. False if the library has no algorithm for these types and layouts:
  // nothing was enqueued.
  bool multiply(const GemmProduct& product);

 private:
  // m, n, k, transposes, types, leading dimensions, alignments (of the bias: 0 if it is not fused),
  // beta, rounding
  using Key = std::array<int64_t, 16>;
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    size_t workspace_bytes = 0;
    bool bias_fused = false;
    bool possible = true;
  };
  using Candidates = std::vector<cublasLtMatmulHeuristicResult_t>;

  // The bias in the result's type, valid until the next operation.
  Vector bias_as(DType dtype, const Vector& bias);
  Key key_of(const GemmProduct& product) const;
  Plan make_plan(const GemmProduct& product, const Key& key);
  void describe(Plan& plan, const GemmProduct& product, bool fuse_bias) const;
  Candidates candidates(const Plan& plan, const Key& key) const;
  bool known(Plan& plan, const std::string& key) const;
  void search(Plan& plan, const GemmProduct& product, const std::string& key,
              const Candidates& found);
  cublasStatus_t run(const Plan& plan, const GemmProduct& product,
                     const cublasLtMatmulAlgo_t& algorithm, size_t workspace_bytes);
  static void destroy(Plan& plan);

  CudaStream& stream_;
  cublasLtHandle_t handle_ = nullptr;
  GemmTuning tuning_;
  std::map<Key, Plan> plans_;
};

// C = beta * C + bias for each row, computed in f32 (gemm_epilogue.cu); without a bias C = beta *
// C.
void gemm_epilogue(CudaStream& stream, const Matrix& c, const Vector& bias, float beta);

}  // namespace tutti::engine
