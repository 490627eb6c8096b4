// Products of experts, one after the other, each on all threads (moe_ops.h states the contract).
// Their sizes change from step to step, so no primitive is kept per shape, and scratch memory is
// asked for as if one expert had all rows.
#include <cstring>

#include "tutti/engine/cpu/gemm_bf16.h"
#include "tutti/engine/cpu/gemm_onednn.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"

namespace tutti::engine {
namespace {

// The largest product that this call may make, for the scratch memory of both kernels.
void reserve(CpuStream& stream, const GemmArgs& largest) {
  stream.scratch(gemm_bf16_possible(largest) ? gemm_bf16_scratch_bytes(stream, largest)
                                             : gemm_any_scratch_bytes(largest));
}

void multiply(CpuStream& stream, const GemmArgs& args) {
  if (gemm_bf16_possible(args)) {
    gemm_bf16(stream, args);
  } else {
    gemm_any(stream, args);
  }
}

int64_t expert_count(const Matrix& weights, int64_t height, const Vector& offsets) {
  return height == 0 ? offsets.count - 1 : weights.rows / height;
}

// Checks what all grouped products have in common, with `experts` weights of `height` rows; returns
// the number of rows in use.
int64_t check_groups(const char* op, const Matrix& x, const Matrix& y, const Matrix& weights,
                     int64_t height, const Vector& offsets) {
  const int64_t groups = offsets.count - 1;
  const int64_t experts = expert_count(weights, height, offsets);
  TUTTI_CHECK(experts > 0 && experts * height == weights.rows && groups > 0 &&
                  groups % experts == 0 && x.rows == y.rows,
              "{}: {} groups, weights [{}, {}] of {} rows each, rows {} and {}", op, groups,
              weights.rows, weights.cols, height, x.rows, y.rows);
  const auto* at = offsets.as<int32_t>();
  TUTTI_CHECK(at[0] == 0 && at[groups] <= x.rows, "{}: rows {} to {} of {}", op, at[0], at[groups],
              x.rows);
  for (int64_t e = 0; e < groups; ++e) {
    TUTTI_CHECK(at[e] <= at[e + 1], "{}: group {} from {} to {}", op, e, at[e], at[e + 1]);
  }
  return at[groups];
}

void zero(const Matrix& x) {
  for (int64_t r = 0; r < x.rows; ++r) {
    std::memset(x.row<float>(r), 0, static_cast<size_t>(x.cols) * sizeof(float));
  }
}

double real(int64_t x) { return static_cast<double>(x); }

}  // namespace

void cpu_grouped_gemm(Stream& stream, const GroupedGemmArgs& args) {
  constexpr const char* kOp = "grouped_gemm";
  const int64_t groups = args.offsets.count - 1;
  const int64_t k = args.a.cols;
  const int64_t n = args.c.cols;
  const int64_t height = args.transpose_b ? n : k;
  const int64_t used = check_groups(kOp, args.a, args.c, args.b, height, args.offsets);
  const int64_t experts = expert_count(args.b, height, args.offsets);
  TUTTI_CHECK((args.transpose_b ? height : args.b.cols) == n &&
                  (args.transpose_b ? args.b.cols : height) == k && args.a.dtype == args.b.dtype &&
                  args.a.dtype == args.c.dtype,
              "{}: {} [.., {}] x {} [{}, {}]{} -> {} [.., {}]", kOp, dtype_name(args.a.dtype), k,
              dtype_name(args.b.dtype), height, args.b.cols, args.transpose_b ? "^T" : "",
              dtype_name(args.c.dtype), n);
  const double begin = begin_op(stream);
  const auto product = [&](int64_t first, int64_t rows, int64_t group) {
    GemmArgs gemm;
    gemm.a = args.a.slice_rows(first, rows);
    gemm.b = args.b.slice_rows(group * height, height);
    gemm.c = args.c.slice_rows(first, rows);
    gemm.transpose_b = args.transpose_b;
    return gemm;
  };
  if (n > 0 && k > 0 && args.a.rows > 0) {
    reserve(cpu_stream(stream), product(0, args.a.rows, 0));
    const auto* offsets = args.offsets.as<int32_t>();
    for (int64_t e = 0; e < groups; ++e) {
      const int64_t rows = offsets[e + 1] - offsets[e];
      if (rows > 0) multiply(cpu_stream(stream), product(offsets[e], rows, e % experts));
    }
  }
  record(stream, kOp, {experts, used, n, k}, 2 * real(used) * real(n) * real(k),
         real(used * (n + k)) * real(dtype_bytes(args.a.dtype)) + real(args.b.bytes()), begin);
}

void cpu_grouped_gemm_weight(Stream& stream, const GroupedGemmWeightArgs& args) {
  constexpr const char* kOp = "grouped_gemm_weight";
  const int64_t groups = args.offsets.count - 1;
  const int64_t m = args.dy.cols;
  const int64_t n = args.x.cols;
  const int64_t used = check_groups(kOp, args.dy, args.x, args.d_weight, m, args.offsets);
  const int64_t experts = expert_count(args.d_weight, m, args.offsets);
  TUTTI_CHECK(
      args.d_weight.cols == n && args.dy.dtype == args.x.dtype && args.d_weight.dtype == DType::f32,
      "{}: {} [.., {}], {} [.., {}] -> {} [{}, {}] of {} groups", kOp, dtype_name(args.dy.dtype), m,
      dtype_name(args.x.dtype), n, dtype_name(args.d_weight.dtype), args.d_weight.rows,
      args.d_weight.cols, groups);
  TUTTI_CHECK(args.beta == 0 || args.beta == 1, "{}: beta {}", kOp, args.beta);
  const double begin = begin_op(stream);
  const auto product = [&](int64_t first, int64_t rows, int64_t expert, float beta) {
    GemmArgs gemm;
    gemm.a = args.dy.slice_rows(first, rows);
    gemm.b = args.x.slice_rows(first, rows);
    gemm.c = args.d_weight.slice_rows(expert * m, m);
    gemm.transpose_a = true;
    gemm.beta = beta;
    return gemm;
  };
  if (m > 0 && n > 0) {
    if (args.x.rows > 0) reserve(cpu_stream(stream), product(0, args.x.rows, 0, args.beta));
    const auto* offsets = args.offsets.as<int32_t>();
    for (int64_t e = 0; e < experts; ++e) {
      float beta = args.beta;
      for (int64_t group = e; group < groups; group += experts) {
        const int64_t rows = offsets[group + 1] - offsets[group];
        if (rows == 0) continue;
        multiply(cpu_stream(stream), product(offsets[group], rows, e, beta));
        beta = 1;
      }
      if (beta == 0) zero(args.d_weight.slice_rows(e * m, m));
    }
  }
  record(stream, kOp, {experts, used, m, n}, 2 * real(used) * real(m) * real(n),
         real(used * (m + n)) * real(dtype_bytes(args.x.dtype)) +
             (args.beta == 0 ? 1 : 2) * real(args.d_weight.bytes()),
         begin);
}

}  // namespace tutti::engine
