// Products of experts, one after the other, each on all threads (moe_ops.h states the contract).
// Their sizes change from step to step, so no primitive is kept per shape, and scratch memory is
// asked for as if one expert had all rows.
#include <cstring>

#include "tutti/engine/cpu/gemm_bf16.h"
#include "tutti/engine/cpu/gemm_onednn.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

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

// Checks the boundaries of groups; returns the number of rows in use.
int64_t check_offsets(const char* op, const Matrix& x, const Vector& offsets) {
  const int64_t groups = offsets.count - 1;
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

}  // namespace

void cpu_grouped_gemm(Stream& stream, const GroupedGemmArgs& args) {
  OpRecord what = describe(args);
  const int64_t groups = args.offsets.count - 1;
  const int64_t k = args.a.cols;
  const int64_t n = args.c.cols;
  const int64_t height = args.transpose_b ? n : k;
  const int64_t experts = expert_count(args);
  add_used_rows(what, args, check_offsets(what.op, args.a, args.offsets));
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
  record(stream, what, begin);
}

void cpu_grouped_gemm_weight(Stream& stream, const GroupedGemmWeightArgs& args) {
  OpRecord what = describe(args);
  const int64_t groups = args.offsets.count - 1;
  const int64_t m = args.dy.cols;
  const int64_t n = args.x.cols;
  const int64_t experts = expert_count(args);
  add_used_rows(what, args, check_offsets(what.op, args.x, args.offsets));
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
  record(stream, what, begin);
}

}  // namespace tutti::engine
