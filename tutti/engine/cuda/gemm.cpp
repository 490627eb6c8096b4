#include "tutti/engine/cuda/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/base/check.h"
#include "tutti/base/device_workspace.h"
#include "tutti/engine/cuda/check.h"
#include "tutti/engine/cuda/gemm_plain.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/record.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/gemm_check.h"
#include "tutti/engine/notes.h"

namespace tutti::engine {
namespace {

constexpr int kCandidates = 24;
constexpr int kTimedRuns = 3;

void lt_check(cublasStatus_t status, const char* call,
              const std::source_location& at = std::source_location::current()) {
  library_check(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt", call, static_cast<int>(status),
                cublasLtGetStatusString(status), "gemm", at);
}

cudaDataType_t data_type(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// The largest power of two up to 256 that divides the address.
int64_t alignment(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return static_cast<int64_t>(std::min<uintptr_t>(256, address & (~address + 1)));
}

std::string gpu_name(int device) {
  cudaDeviceProp properties = {};
  cuda_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", "gemm");
  return properties.name;
}

// With 8-bit operands and f32 results the library supports only a bf16 bias: our own epilogue adds
// it instead. Otherwise the bias has the type of the result (bias_as()).
bool can_fuse_bias(const GemmProduct& product) {
  const bool narrow = product.a_scale != nullptr;
  return product.bias && (!narrow || product.c_type == DType::bf16);
}

template <typename T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  lt_check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)),
           "cublasLtMatmulDescSetAttribute");
}

template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  lt_check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
           "cublasLtMatmulPreferenceSetAttribute");
}

// A row-major matrix as the equivalent column-major one.
cublasLtMatrixLayout_t layout_of(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld) {
  cublasLtMatrixLayout_t layout = nullptr;
  lt_check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(cols),
                                      static_cast<uint64_t>(rows), ld),
           "cublasLtMatrixLayoutCreate");
  return layout;
}

// Sets the pointers of a plan for one call.
void point(cublasLtMatmulDesc_t description, const GemmProduct& product, bool bias_fused) {
  if (bias_fused) {
    const void* bias = product.bias.data;
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  if (product.a_scale != nullptr) {
    const void* left = product.b_scale;
    const void* right = product.a_scale;
    set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, left);
    set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, right);
  }
}

// Saves the content of C while algorithms are measured on it, and restores it afterwards.
class KeptMatrix {
 public:
  KeptMatrix(CudaStream& stream, const Matrix& c, bool needed) : stream_(stream), c_(c) {
    if (!needed) return;
    bytes_ = ((c.rows - 1) * c.ld + c.cols) * dtype_bytes(c.dtype);
    if (cudaMalloc(&copy_, static_cast<size_t>(bytes_)) != cudaSuccess) {
      cudaGetLastError();
      copy_ = nullptr;
      possible_ = false;
      return;
    }
    stream_.transfer(copy_, c_.data, bytes_);
  }
  ~KeptMatrix() {
    if (copy_ == nullptr) return;
    stream_.transfer(c_.data, copy_, bytes_);
    stream_.synchronize();
    cudaFree(copy_);
  }
  KeptMatrix(const KeptMatrix&) = delete;
  KeptMatrix& operator=(const KeptMatrix&) = delete;

  bool possible() const { return possible_; }  // false: no memory for a copy

 private:
  CudaStream& stream_;
  Matrix c_;
  int64_t bytes_ = 0;
  void* copy_ = nullptr;
  bool possible_ = true;
};

}  // namespace

CudaGemm::CudaGemm(CudaStream& stream)
    : stream_(stream),
      tuning_(stream.tuning_folder(), gpu_name(stream.device()), cublasLtGetVersion()) {
  lt_check(cublasLtCreate(&handle_), "cublasLtCreate");
}

CudaGemm::~CudaGemm() {
  for (auto& [key, plan] : plans_) destroy(plan);
  cublasLtDestroy(handle_);
}

void CudaGemm::destroy(Plan& plan) {
  cublasLtMatrixLayoutDestroy(plan.left);
  cublasLtMatrixLayoutDestroy(plan.right);
  cublasLtMatrixLayoutDestroy(plan.out);
  cublasLtMatmulDescDestroy(plan.product);
  plan = {};
}

void CudaGemm::describe(Plan& plan, const GemmProduct& product, bool fuse_bias) const {
  const bool rounds = stream_.tf32() && product.a_type == CUDA_R_32F;
  lt_check(
      cublasLtMatmulDescCreate(
          &plan.product, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "cublasLtMatmulDescCreate");
  set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  const auto layout = [](cudaDataType_t type, int64_t rows, int64_t cols, bool turned, int64_t ld) {
    return layout_of(type, turned ? cols : rows, turned ? rows : cols, ld);
  };
  plan.left = layout(product.b_type, product.k, product.n, product.transpose_b, product.b_ld);
  plan.right = layout(product.a_type, product.m, product.k, product.transpose_a, product.a_ld);
  plan.out = layout(data_type(product.c_type), product.m, product.n, false, product.c_ld);
  plan.bias_fused = fuse_bias;
  if (fuse_bias) {
    set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        static_cast<int32_t>(data_type(product.bias.dtype)));
  }
  if (product.fast_sums) set(plan.product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  point(plan.product, product, fuse_bias);
}

CudaGemm::Candidates CudaGemm::candidates(const Plan& plan, const Key& key) const {
  cublasLtMatmulPreference_t preference = nullptr;
  lt_check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kProductWorkspaceBytes});
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  const auto aligned = [&](cublasLtMatmulPreferenceAttributes_t attribute, size_t index) {
    set(preference, attribute, static_cast<uint32_t>(key[index]));
  };
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 11);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 10);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 12);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 12);
  Candidates found(kCandidates);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.product, plan.left, plan.right, plan.out,
                                     plan.out, preference, kCandidates, found.data(), &count);
  lt_check(cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
  // Unsupported combinations of types and layouts return either status.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) {
    lt_check(status, "cublasLtMatmulAlgoGetHeuristic");
  }
  found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
  found.erase(std::remove_if(found.begin(), found.end(),
                             [](const cublasLtMatmulHeuristicResult_t& one) {
                               return one.state != CUBLAS_STATUS_SUCCESS;
                             }),
              found.end());
  return found;
}

// Whether the file has an algorithm for the product that the library accepts.
bool CudaGemm::known(Plan& plan, const std::string& key) const {
  const std::optional<TunedGemm> tuned = tuning_.find(key);
  if (!tuned) return false;
  static_assert(sizeof(plan.algorithm) == sizeof(tuned->algorithm));
  std::memcpy(&plan.algorithm, tuned->algorithm.data(), sizeof(plan.algorithm));
  cublasLtMatmulHeuristicResult_t result = {};
  if (cublasLtMatmulAlgoCheck(handle_, plan.product, plan.left, plan.right, plan.out, plan.out,
                              &plan.algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > uint64_t{kProductWorkspaceBytes}) {
    return false;
  }
  plan.workspace_bytes = result.workspaceSize;
  return true;
}

cublasStatus_t CudaGemm::run(const Plan& plan, const GemmProduct& product,
                             const cublasLtMatmulAlgo_t& algorithm, size_t workspace_bytes) {
  void* workspace = stream_.workspace(static_cast<int64_t>(workspace_bytes));
  return cublasLtMatmul(handle_, plan.product, &product.alpha, product.b, plan.left, product.a,
                        plan.right, &product.beta, product.c, plan.out, product.c, plan.out,
                        &algorithm, workspace, workspace_bytes, stream_.handle());
}

void CudaGemm::search(Plan& plan, const GemmProduct& product, const std::string& key,
                      const Candidates& found) {
  plan.algorithm = found.front().algo;
  plan.workspace_bytes = found.front().workspaceSize;
  if (found.size() == 1) return;
  // The measured runs write C; the product itself is computed again afterwards.
  const KeptMatrix kept(stream_, product.result(), product.beta != 0);
  if (!kept.possible()) return;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cuda_check(cudaEventCreate(&begin), "cudaEventCreate", "gemm");
  cuda_check(cudaEventCreate(&end), "cudaEventCreate", "gemm");
  float best = std::numeric_limits<float>::infinity();
  for (const cublasLtMatmulHeuristicResult_t& one : found) {
    if (run(plan, product, one.algo, one.workspaceSize) != CUBLAS_STATUS_SUCCESS) continue;
    for (int i = 0; i < kTimedRuns; ++i) {
      cuda_check(cudaEventRecord(begin, stream_.handle()), "cudaEventRecord", "gemm");
      lt_check(run(plan, product, one.algo, one.workspaceSize), "cublasLtMatmul");
      cuda_check(cudaEventRecord(end, stream_.handle()), "cudaEventRecord", "gemm");
      cuda_check(cudaEventSynchronize(end), "cudaEventSynchronize", key.c_str());
      float milliseconds = 0;
      cuda_check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime", "gemm");
      if (milliseconds < best) {
        best = milliseconds;
        plan.algorithm = one.algo;
        plan.workspace_bytes = one.workspaceSize;
      }
    }
  }
  cuda_check(cudaEventDestroy(begin), "cudaEventDestroy", "gemm");
  cuda_check(cudaEventDestroy(end), "cudaEventDestroy", "gemm");
  if (!std::isfinite(best)) return;  // no candidate ran: the next process tries again
  TunedGemm tuned;
  std::memcpy(tuned.algorithm.data(), &plan.algorithm, sizeof(plan.algorithm));
  tuned.seconds = static_cast<double>(best) * 1e-3;
  // Adopts the choice of another rank, so that both compute the same bits.
  const TunedGemm shared = tuning_.add(key, tuned);
  if (!tuning_.warning().empty()) note(tuning_.warning());
  if (shared.algorithm == tuned.algorithm) return;
  const cublasLtMatmulAlgo_t own = plan.algorithm;
  if (!known(plan, key)) plan.algorithm = own;
}

CudaGemm::Plan CudaGemm::make_plan(const GemmProduct& product, const Key& key) {
  std::string text;
  for (const int64_t part : key) text += (text.empty() ? "" : " ") + std::to_string(part);
  TUTTI_CHECK(!stream_.capturing(), "gemm of new sizes ({}) in a captured step", text);
  Plan plan;
  describe(plan, product, can_fuse_bias(product));
  if (known(plan, text)) return plan;
  Candidates found = candidates(plan, key);
  if (found.empty() && plan.bias_fused) {
    destroy(plan);
    describe(plan, product, false);
    text += " unfused";
    if (known(plan, text)) return plan;
    found = candidates(plan, key);
  }
  plan.possible = !found.empty();
  if (plan.possible) search(plan, product, text, found);
  return plan;
}

CudaGemm::Key CudaGemm::key_of(const GemmProduct& product) const {
  return {product.m,
          product.n,
          product.k,
          (product.transpose_a ? 1 : 0) + (product.transpose_b ? 2 : 0),
          static_cast<int64_t>(product.a_type),
          static_cast<int64_t>(product.b_type),
          static_cast<int64_t>(product.c_type),
          product.a_ld,
          product.b_ld,
          product.c_ld,
          alignment(product.a),
          alignment(product.b),
          alignment(product.c),
          can_fuse_bias(product) ? alignment(product.bias.data) : 0,
          product.beta != 0 ? 1 : 0,
          (stream_.tf32() ? 1 : 0) + (product.fast_sums ? 2 : 0)};
}

// Converts the bias into the workspace after the library's part. The library can then add it before
// rounding, so that the result is rounded only once.
Vector CudaGemm::bias_as(DType dtype, const Vector& bias) {
  const int64_t bytes = bias.count * dtype_bytes(dtype);
  auto* const workspace = static_cast<char*>(stream_.workspace(kProductWorkspaceBytes + bytes));
  const Vector out = {workspace + kProductWorkspaceBytes, dtype, bias.count};
  gemm_epilogue(stream_, {out.data, dtype, 1, bias.count, bias.count}, bias, 0);
  return out;
}

bool CudaGemm::multiply(const GemmProduct& requested) {
  GemmProduct product = requested;
  if (product.bias && product.bias.dtype != product.c_type) {
    product.bias = bias_as(product.c_type, product.bias);
  }
  const Key key = key_of(product);
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, make_plan(product, key)).first;
  const Plan& plan = found->second;
  if (!plan.possible) return false;
  point(plan.product, product, plan.bias_fused);
  lt_check(run(plan, product, plan.algorithm, plan.workspace_bytes), "cublasLtMatmul");
  if (product.bias && !plan.bias_fused) {
    gemm_epilogue(stream_, product.result(), product.bias, 1);
  }
  return true;
}

void cuda_gemm(Stream& stream, const GemmArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const GemmProduct product = {.a = args.a.data,
                               .b = args.b.data,
                               .c = args.c.data,
                               .m = args.c.rows,
                               .n = args.c.cols,
                               .k = args.transpose_a ? args.a.rows : args.a.cols,
                               .a_type = data_type(args.a.dtype),
                               .b_type = data_type(args.b.dtype),
                               .c_type = args.c.dtype,
                               .a_ld = args.a.ld,
                               .b_ld = args.b.ld,
                               .c_ld = args.c.ld,
                               .transpose_a = args.transpose_a,
                               .transpose_b = args.transpose_b,
                               .alpha = args.alpha,
                               .beta = args.beta,
                               .bias = args.bias};
  if (product.m > 0 && product.n > 0) {
    if (product.k == 0) {
      gemm_epilogue(cuda, args.c, args.bias, args.beta);
    } else if (!cuda.gemm().multiply(product)) {
      note(
          fmt::format("cuBLASLt has no algorithm for a product of {} matrices, {} x {} x {} with "
                      "leading dimensions {}, {} and {}: using the slower plain kernel",
                      dtype_name(args.a.dtype), product.m, product.n, product.k, args.a.ld,
                      args.b.ld, args.c.ld));
      gemm_plain(cuda, args);
    }
  }
  record(cuda, what, begin);
}

}  // namespace tutti::engine
