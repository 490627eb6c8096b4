// cuBLASLt on the host: the functions that the CUDA backend calls, computed by cublaslt_product.h
// when the stream executes them. It rejects what the documented library rejects on GPUs before
// Blackwell, to check that descriptors are valid. There are three algorithms, which differ in the
// order of their sums, in their workspace and in their requirements. With TUTTI_HOST_CUBLASLT=even
// in the environment none supports a matrix with an odd leading dimension.
#include <cublasLt.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

#include "tutti/engine/testing/on_host/cublaslt_product.h"
#include "tutti/engine/testing/on_host/queue.h"

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale_type = CUDA_R_32F;
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;
  const void* bias = nullptr;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
  int8_t fast_sums = 0;
};

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type = CUDA_R_32F;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0;
};

struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace_bytes = 0;
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t a_alignment = 256, b_alignment = 256, c_alignment = 256, d_alignment = 256;
};

namespace {

using tutti::engine::on_host::HostProduct;
using tutti::engine::on_host::SumOrder;

struct Algorithm {
  SumOrder order;
  uint64_t workspace_bytes;
  uint32_t alignment;  // of A, B, C and D, if greater than that of their elements
  uint32_t bias_alignment;
  uint32_t scheme;
};
constexpr Algorithm kAlgorithms[] = {
    {SumOrder::forwards, 0, 1, 8, CUBLASLT_REDUCTION_SCHEME_NONE},
    {SumOrder::backwards, 1024, 1, 8, CUBLASLT_REDUCTION_SCHEME_NONE},
    {SumOrder::halves, 4096, 16, 16, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}};
constexpr uint64_t kAlgorithmCount = std::size(kAlgorithms);
constexpr uint64_t kMagic = 0x746c6f6e686f7374;
constexpr uint64_t kWorkspaceAlignment = 16;
constexpr uint32_t kNarrowAlignment = 16;

bool is_narrow(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

// A call without the addresses of its operands.
struct Problem {
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, c, d;

  bool complete() const { return product && a && b && c && d; }
  bool narrow() const { return is_narrow(a->type) || is_narrow(b->type); }
  bool has_bias() const { return product->epilogue == CUBLASLT_EPILOGUE_BIAS; }
  uint64_t inner() const { return product->transpose_a == CUBLAS_OP_T ? a->rows : a->cols; }
  // The only compute type for these operand types.
  cudaDataType_t bias_type() const { return narrow() ? CUDA_R_16BF : d->type; }
};

uint32_t element_bytes(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1;
}

bool is_aligned(const void* address, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

bool sizes_agree(const Problem& x) {
  for (const cublasLtMatrixLayout_t one : {x.a, x.b, x.c, x.d}) {
    if (one->rows == 0 || one->cols == 0 || one->ld < static_cast<int64_t>(one->rows)) return false;
  }
  const bool turned_a = x.product->transpose_a == CUBLAS_OP_T;
  const bool turned_b = x.product->transpose_b == CUBLAS_OP_T;
  return x.inner() == (turned_b ? x.b->cols : x.b->rows) &&
         x.d->rows == (turned_a ? x.a->cols : x.a->rows) &&
         x.d->cols == (turned_b ? x.b->rows : x.b->cols) && x.c->rows == x.d->rows &&
         x.c->cols == x.d->cols;
}

// Products of 8-bit operands before Blackwell.
bool narrow_supported(const Problem& x) {
  const auto whole = [](uint64_t elements, cudaDataType_t type) {
    return elements * element_bytes(type) % kNarrowAlignment == 0;
  };
  const auto whole_columns = [&](cublasLtMatrixLayout_t one) {
    return whole(static_cast<uint64_t>(one->ld), one->type);
  };
  return is_narrow(x.a->type) && is_narrow(x.b->type) &&
         (x.a->type == CUDA_R_8F_E4M3 || x.b->type == CUDA_R_8F_E4M3) &&
         x.product->compute == CUBLAS_COMPUTE_32F && x.product->transpose_a == CUBLAS_OP_T &&
         x.product->transpose_b == CUBLAS_OP_N && whole(x.inner(), x.a->type) &&
         whole(x.d->rows, x.a->type) && whole_columns(x.a) && whole_columns(x.b) &&
         whole_columns(x.c) && whole_columns(x.d);
}

bool types_supported(const Problem& x) {
  const bool to_f32 = x.d->type == CUDA_R_32F;
  if (x.product->scale_type != CUDA_R_32F || x.c->type != x.d->type ||
      (!to_f32 && x.d->type != CUDA_R_16BF)) {
    return false;
  }
  if (!x.has_bias() && x.product->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return false;
  if (x.has_bias() && x.product->bias_type != -1 && x.product->bias_type != x.bias_type()) {
    return false;
  }
  if (x.narrow()) return narrow_supported(x);
  if (x.product->a_scale != nullptr || x.product->b_scale != nullptr) return false;
  if (x.product->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && x.a->type != CUDA_R_32F) return false;
  return x.a->type == x.b->type && (to_f32 || x.a->type == x.d->type);
}

cublasStatus_t check(cublasLtHandle_t handle, const Problem& x) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!x.complete() || !sizes_agree(x)) return CUBLAS_STATUS_INVALID_VALUE;
  return types_supported(x) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool takes_rows(const Problem& x) {
  static const bool only_even = [] {
    const char* const text = std::getenv("TUTTI_HOST_CUBLASLT");
    return text != nullptr && std::strcmp(text, "even") == 0;
  }();
  const auto is_even = [](cublasLtMatrixLayout_t one) { return one->ld % 2 == 0; };
  return !only_even || (is_even(x.a) && is_even(x.b) && is_even(x.c) && is_even(x.d));
}

// Whether fast sums change the bits: TUTTI_HOST_CUBLASLT=coarse.
bool coarse_fast_sums() {
  const char* const text = std::getenv("TUTTI_HOST_CUBLASLT");
  return text != nullptr && std::strcmp(text, "coarse") == 0;
}

// The alignment that an algorithm requires of a matrix.
uint32_t alignment_of(const Algorithm& algorithm, const Problem& x, cublasLtMatrixLayout_t matrix) {
  return std::max(algorithm.alignment, x.narrow() ? kNarrowAlignment : element_bytes(matrix->type));
}

bool takes_bias(const Algorithm& algorithm, const Problem& x) {
  return !x.has_bias() || is_aligned(x.product->bias, algorithm.bias_alignment);
}

cublasLtMatmulAlgo_t packed(uint64_t index) {
  const Algorithm& one = kAlgorithms[index];
  return {{kMagic, index, one.workspace_bytes, one.alignment, one.bias_alignment, one.scheme}};
}

// The algorithm with these bytes, or null if they are not from this version.
std::optional<Algorithm> unpacked(const cublasLtMatmulAlgo_t* algorithm) {
  if (algorithm == nullptr || algorithm->data[1] >= kAlgorithmCount) return std::nullopt;
  const cublasLtMatmulAlgo_t own = packed(algorithm->data[1]);
  if (std::memcmp(&own, algorithm, sizeof own) != 0) return std::nullopt;
  return kAlgorithms[algorithm->data[1]];
}

cublasLtMatmulHeuristicResult_t result_of(uint64_t index) {
  cublasLtMatmulHeuristicResult_t result = {};
  result.algo = packed(index);
  result.workspaceSize = kAlgorithms[index].workspace_bytes;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  return result;
}

// Sets an attribute after checking its size.
template <typename T>
cublasStatus_t assign(T& to, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t create(T** out, const T& value) {
  if (out == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *out = new T(value);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t destroy(T* one) {
  delete one;
  return CUBLAS_STATUS_SUCCESS;
}

HostProduct product_of(const Problem& x, const Algorithm& algorithm) {
  HostProduct out;
  out.m = static_cast<int64_t>(x.d->rows);
  out.n = static_cast<int64_t>(x.d->cols);
  out.k = static_cast<int64_t>(x.inner());
  const auto operand = [](cublasLtMatrixLayout_t one, bool transposed, const float* scale) {
    return HostProduct::Operand{nullptr, one->type, one->ld, transposed, scale};
  };
  out.a = operand(x.a, x.product->transpose_a == CUBLAS_OP_T, x.product->a_scale);
  out.b = operand(x.b, x.product->transpose_b == CUBLAS_OP_T, x.product->b_scale);
  out.c = operand(x.c, false, nullptr);
  out.d_type = x.d->type;
  out.d_ld = x.d->ld;
  out.bias = x.has_bias() ? x.product->bias : nullptr;
  out.bias_type = x.bias_type();
  out.tf32 = x.product->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  out.order = algorithm.order;
  return out;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "not initialized";
    case CUBLAS_STATUS_INVALID_VALUE: return "invalid value";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
  }
  return "unknown status";
}

// Version of the algorithms here: choices stored by another version are ignored.
size_t cublasLtGetVersion() { return 1; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return create(handle, {}); }

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : destroy(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale_type) {
  return create(product, {.compute = compute, .scale_type = scale_type});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) { return destroy(product); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (product == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return assign(product->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return assign(product->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign(product->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign(product->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return assign(product->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return assign(product->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return assign(product->fast_sums, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return assign(product->bias_type, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  return create(layout, {type, rows, cols, ld});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, {});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(preference->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(preference->a_alignment, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(preference->b_alignment, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(preference->c_alignment, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(preference->d_alignment, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  if (preference == nullptr || wanted <= 0 || results == nullptr || count == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *count = 0;
  const Problem x = {product, a, b, c, d};
  const cublasStatus_t status = check(handle, x);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!takes_rows(x)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (uint64_t i = 0; i < kAlgorithmCount && *count < wanted; ++i) {
    const Algorithm& one = kAlgorithms[i];
    const bool taken = one.workspace_bytes <= preference->workspace_bytes &&
                       (one.scheme & ~preference->schemes) == 0 && takes_bias(one, x) &&
                       preference->a_alignment >= alignment_of(one, x, a) &&
                       preference->b_alignment >= alignment_of(one, x, b) &&
                       preference->c_alignment >= alignment_of(one, x, c) &&
                       preference->d_alignment >= alignment_of(one, x, d);
    if (taken) results[(*count)++] = result_of(i);
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const Problem x = {product, a, b, c, d};
  const cublasStatus_t status = check(handle, x);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::optional<Algorithm> known = unpacked(algorithm);
  if (!known || result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!takes_bias(*known, x) || !takes_rows(x)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const cublasLtMatmulAlgo_t kept = result->algo;
  *result = result_of(algorithm->data[1]);
  result->algo = kept;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Problem x = {product, a_layout, b_layout, c_layout, d_layout};
  const cublasStatus_t status = check(handle, x);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::optional<Algorithm> known = unpacked(algorithm);
  if (!known || !alpha || !beta || !a || !b || !c || !d || (x.has_bias() && !product->bias) ||
      (c == d && c_layout->ld != d_layout->ld)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const uint64_t needed = known->workspace_bytes;
  if (workspace_bytes < needed ||
      (needed > 0 && (!workspace || !is_aligned(workspace, kWorkspaceAlignment)))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!is_aligned(a, alignment_of(*known, x, a_layout)) ||
      !is_aligned(b, alignment_of(*known, x, b_layout)) ||
      !is_aligned(c, alignment_of(*known, x, c_layout)) ||
      !is_aligned(d, alignment_of(*known, x, d_layout)) || !takes_bias(*known, x)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  HostProduct work = product_of(x, *known);
  work.a.data = a;
  work.b.data = b;
  work.c.data = c;
  work.d = d;
  work.coarse = product->fast_sums != 0 && coarse_fast_sums();
  std::memcpy(&work.alpha, alpha, sizeof work.alpha);
  std::memcpy(&work.beta, beta, sizeof work.beta);
  tutti::engine::on_host::enqueue(stream, [work, workspace, needed] {
    // Overwrites the workspace, to expose other uses of it.
    if (needed > 0) std::memset(workspace, 0xff, needed);
    multiply(work);
  });
  return CUBLAS_STATUS_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
