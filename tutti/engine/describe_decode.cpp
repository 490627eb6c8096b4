#include "tutti/base/check.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {

OpRecord describe(const DecodeGemmArgs& args) {
  const int64_t m = args.a.rows;
  const int64_t k = args.a.cols;
  const int64_t n = args.packed ? args.packed.rows : args.weight.rows;
  const int64_t inner = args.packed ? args.packed.columns : args.weight.cols;
  TUTTI_CHECK(inner == k && args.c.rows == m && args.c.cols == n,
              "decode_gemm: A [{}, {}] B [{}, {}]^T C [{}, {}]", m, k, n, inner, args.c.rows,
              args.c.cols);
  const auto is_real = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  TUTTI_CHECK(is_real(args.a.dtype) && (args.packed || args.weight.dtype == args.a.dtype) &&
                  (args.c.dtype == DType::f32 || args.c.dtype == args.a.dtype),
              "decode_gemm: {} x {} -> {}", dtype_name(args.a.dtype),
              args.packed ? "packed" : dtype_name(args.weight.dtype), dtype_name(args.c.dtype));
  TUTTI_CHECK(!args.bias || (is_real(args.bias.dtype) && args.bias.count == n),
              "decode_gemm: bias of {} {} for n {}", args.bias.count, dtype_name(args.bias.dtype),
              n);
  TUTTI_CHECK(args.alpha == 1 || !args.bias, "decode_gemm: alpha {} with a bias, expected 1",
              args.alpha);
  OpRecord what;
  what.op = "decode_gemm";
  what.dims = {m, n, k};
  what.flops = 2.0 * real(m) * real(n) * real(k);
  what.bytes =
      real(args.a.bytes() + (args.packed ? args.packed.layout().bytes : args.weight.bytes()) +
           args.c.bytes() + args.bias.bytes());
  return what;
}

}  // namespace tutti::engine
