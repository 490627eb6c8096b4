// Products of 8-bit operands by cuBLASLt, which applies their scales on the device (narrow_ops.h
// states the contract). It reads the layout of narrow_layout() directly: rows of codes along the
// inner dimension, padded with zeros to multiples of 16, so that it can multiply the padded rows.
// Unsupported cases (block scales, two operands of E5M2, results of odd sizes) use the plain
// kernel.
#include <cstddef>

#include "tutti/engine/cuda/gemm.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/narrow_plain.h"
#include "tutti/engine/cuda/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

cudaDataType_t type_of(NarrowKind kind) {
  return kind == NarrowKind::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

const float* scale_of(const NarrowMatrix& x) {
  static_assert(offsetof(NarrowHeader, inverse_scale) == 0);
  return static_cast<const float*>(x.data);
}

bool multiply(CudaStream& stream, const NarrowGemmArgs& args) {
  // Tensor cores support 8-bit types from compute capability 8.9 on.
  if (!per_tensor(args.a.kind) || !per_tensor(args.b.kind) || stream.capability() < 89)
    return false;
  const NarrowLayout a = args.a.layout();
  const NarrowLayout b = args.b.layout();
  return stream.gemm().multiply({.a = static_cast<const char*>(args.a.data) + a.codes_offset,
                                 .b = static_cast<const char*>(args.b.data) + b.codes_offset,
                                 .c = args.c.data,
                                 .m = args.c.rows,
                                 .n = args.c.cols,
                                 .k = a.row_bytes,
                                 .a_type = type_of(args.a.kind),
                                 .b_type = type_of(args.b.kind),
                                 .c_type = args.c.dtype,
                                 .a_ld = a.row_bytes,
                                 .b_ld = b.row_bytes,
                                 .c_ld = args.c.ld,
                                 .transpose_b = true,
                                 .beta = args.beta,
                                 .bias = args.bias,
                                 .a_scale = scale_of(args.a),
                                 .b_scale = scale_of(args.b),
                                 .fast_sums = args.fast_sums});
}

}  // namespace

void cuda_narrow_gemm(Stream& stream, const NarrowGemmArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  if (args.c.rows > 0 && args.c.cols > 0) {
    if (args.a.columns == 0) {
      gemm_epilogue(cuda, args.c, args.bias, args.beta);
    } else if (!multiply(cuda, args)) {
      narrow_plain(cuda, args);
    }
  }
  record(cuda, what, begin);
}

}  // namespace tutti::engine
