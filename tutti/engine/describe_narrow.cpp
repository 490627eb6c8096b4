#include "tutti/base/check.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {

OpRecord describe(const QuantizeArgs& args) {
  const NarrowMatrix& out = args.out;
  TUTTI_CHECK(out.columns == (args.transpose ? args.x.rows : args.x.cols) &&
                  out.rows == (args.transpose ? args.x.cols : args.x.rows),
              "quantize: x [{}, {}]{}, out [{}, {}]", args.x.rows, args.x.cols,
              args.transpose ? "^T" : "", out.rows, out.columns);
  TUTTI_CHECK(args.x.dtype == DType::f32 || args.x.dtype == DType::bf16,
              "quantize: unsupported type {}", dtype_name(args.x.dtype));
  TUTTI_CHECK(!args.rows || args.rows.count == args.x.rows, "quantize: {} row numbers for {} rows",
              args.rows.count, args.x.rows);
  const Vector& amax = args.amax.value;
  TUTTI_CHECK(amax ? amax.dtype == DType::f32 && amax.count == 1 : !args.amax.known,
              "quantize: amax of {} {}, known: {}", amax.count, dtype_name(amax.dtype),
              args.amax.known);
  const NarrowMatrix& transposed = args.transposed;
  const bool both = transposed.data != nullptr;
  TUTTI_CHECK(!both || (!args.transpose && transposed.kind == out.kind &&
                        transposed.rows == args.x.cols && transposed.columns == args.x.rows),
              "quantize: x [{}, {}]{} to {}, transposed to {} [{}, {}]", args.x.rows, args.x.cols,
              args.transpose ? "^T" : "", narrow_format(out.kind).name,
              narrow_format(transposed.kind).name, transposed.rows, transposed.columns);
  OpRecord what;
  what.op = "quantize";
  what.dims = {args.x.rows, args.x.cols, both ? 2 : args.transpose ? 1 : 0};
  what.bytes = static_cast<double>(args.x.bytes() + out.layout().payload_bytes +
                                   (both ? transposed.layout().payload_bytes : 0));
  return what;
}

OpRecord describe(const NarrowGemmArgs& args) {
  const int64_t m = args.a.rows;
  const int64_t n = args.b.rows;
  const int64_t k = args.a.columns;
  TUTTI_CHECK(args.b.columns == k && args.c.rows == m && args.c.cols == n,
              "narrow_gemm: A [{}, {}] B [{}, {}]^T C [{}, {}]", m, k, n, args.b.columns,
              args.c.rows, args.c.cols);
  TUTTI_CHECK(args.a.kind == args.b.kind || (per_tensor(args.a.kind) && per_tensor(args.b.kind)),
              "narrow_gemm: {} x {}", narrow_format(args.a.kind).name,
              narrow_format(args.b.kind).name);
  TUTTI_CHECK(args.c.dtype == DType::f32 || args.c.dtype == DType::bf16,
              "narrow_gemm: unsupported result type {}", dtype_name(args.c.dtype));
  TUTTI_CHECK(args.beta == 0 || args.beta == 1, "narrow_gemm: beta {} is neither 0 nor 1",
              args.beta);
  TUTTI_CHECK(!args.bias || args.bias.count == n, "narrow_gemm: bias of {} for n {}",
              args.bias.count, n);
  OpRecord what;
  what.op = "narrow_gemm";
  what.dims = {m, n, k};
  what.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  what.bytes = static_cast<double>(args.a.layout().payload_bytes + args.b.layout().payload_bytes +
                                   (args.beta == 0 ? 1 : 2) * args.c.bytes() + args.bias.bytes());
  return what;
}

}  // namespace tutti::engine
