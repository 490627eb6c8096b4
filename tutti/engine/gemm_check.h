// Checks and record of a matrix product (GemmArgs in ops.h), common to all backends.
#pragma once

#include "tutti/base/check.h"
#include "tutti/engine/ops.h"
#include "tutti/engine/recorder.h"

namespace tutti::engine {

inline OpRecord describe(const GemmArgs& args) {
  const int64_t m = args.transpose_a ? args.a.cols : args.a.rows;
  const int64_t k = args.transpose_a ? args.a.rows : args.a.cols;
  const int64_t n = args.transpose_b ? args.b.rows : args.b.cols;
  TUTTI_CHECK(
      k == (args.transpose_b ? args.b.cols : args.b.rows) && args.c.rows == m && args.c.cols == n,
      "gemm: A [{}, {}]{} B [{}, {}]{} C [{}, {}]", args.a.rows, args.a.cols,
      args.transpose_a ? "^T" : "", args.b.rows, args.b.cols, args.transpose_b ? "^T" : "",
      args.c.rows, args.c.cols);
  TUTTI_CHECK(args.a.ld >= args.a.cols && args.b.ld >= args.b.cols && args.c.ld >= args.c.cols,
              "gemm: ld of A {}, B {}, C {}", args.a.ld, args.b.ld, args.c.ld);
  TUTTI_CHECK((args.a.dtype == DType::f32 || args.a.dtype == DType::bf16) &&
                  args.b.dtype == args.a.dtype &&
                  (args.c.dtype == DType::f32 || args.c.dtype == args.a.dtype),
              "gemm: {} x {} -> {}", dtype_name(args.a.dtype), dtype_name(args.b.dtype),
              dtype_name(args.c.dtype));
  TUTTI_CHECK(args.beta == 0 || args.beta == 1, "gemm: beta {} is neither 0 nor 1", args.beta);
  TUTTI_CHECK(args.alpha == 1 || !args.bias, "gemm: alpha {} with a bias, expected 1", args.alpha);
  TUTTI_CHECK(!args.bias || args.bias.count == n, "gemm: bias of {} for n {}", args.bias.count, n);
  OpRecord what;
  what.op = "gemm";
  what.dims = {m, n, k};
  what.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  what.bytes = static_cast<double>(args.a.bytes() + args.b.bytes() +
                                   (args.beta == 0 ? 1 : 2) * args.c.bytes() + args.bias.bytes());
  return what;
}

}  // namespace tutti::engine
