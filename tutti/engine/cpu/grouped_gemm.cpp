// Products of experts, one after the other, each on all threads (moe_ops.h states the contract).
// Their sizes change from step to step, so primitives are not cached by shape, and scratch memory
// is requested as if one expert had all rows.
#include <cstring>

#include "tutti/engine/cpu/gemm_bf16.h"
#include "tutti/engine/cpu/gemm_onednn.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/row_groups.h"

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

void zero(const Matrix& x) {
  for (int64_t r = 0; r < x.rows; ++r) {
    std::memset(x.row<float>(r), 0, static_cast<size_t>(x.cols) * sizeof(float));
  }
}

}  // namespace

void cpu_grouped_gemm(Stream& stream, const GroupedGemmArgs& args) {
  OpRecord what = describe(args);
  const RowGroups groups = row_groups(args, args.a.rows);
  const int64_t k = args.a.cols;
  const int64_t n = args.c.cols;
  const int64_t height = args.transpose_b ? n : k;
  const int64_t experts = expert_count(args);
  add_used_rows(what, args, used_rows(what.op, groups));
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
    for (int64_t group = 0; group < groups.count(); ++group) {
      const int64_t first = groups.begin(group);
      const int64_t rows = groups.end(group) - first;
      if (rows > 0) multiply(cpu_stream(stream), product(first, rows, group % experts));
    }
  }
  record(stream, what, begin);
}

void cpu_grouped_gemm_weight(Stream& stream, const GroupedGemmWeightArgs& args) {
  OpRecord what = describe(args);
  const RowGroups groups = row_groups(args, args.x.rows);
  const int64_t m = args.dy.cols;
  const int64_t n = args.x.cols;
  const int64_t experts = expert_count(args);
  add_used_rows(what, args, used_rows(what.op, groups));
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
    for (int64_t e = 0; e < experts; ++e) {
      float beta = args.beta;
      for (int64_t group = e; group < groups.count(); group += experts) {
        const int64_t first = groups.begin(group);
        const int64_t rows = groups.end(group) - first;
        if (rows == 0) continue;
        multiply(cpu_stream(stream), product(first, rows, e, beta));
        beta = 1;
      }
      if (beta == 0) zero(args.d_weight.slice_rows(e * m, m));
    }
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
