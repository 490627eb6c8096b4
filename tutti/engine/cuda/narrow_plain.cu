#include <cuda_bf16.h>

#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/narrow_plain.h"

namespace tutti::engine {
namespace {

constexpr int kEdge = 16;  // of a tile of results; one thread per result

struct Operand {
  const uint8_t* data;
  NarrowLayout layout;
  NarrowKind kind;
  int64_t rows, columns;
};

Operand operand(const NarrowMatrix& x) {
  return {static_cast<const uint8_t*>(x.data), x.layout(), x.kind, x.rows, x.columns};
}

__device__ float element(const Operand& x, int64_t row, int64_t column) {
  if (row >= x.rows || column >= x.columns) return 0;
  const uint8_t* codes = x.data + x.layout.codes_offset + row * x.layout.row_bytes;
  const uint8_t* scales = x.data + x.layout.scales_offset + row * x.layout.blocks;
  switch (x.kind) {
    case NarrowKind::e4m3: return decode<kE4m3>(codes[column]);
    case NarrowKind::e5m2: return decode<kE5m2>(codes[column]);
    case NarrowKind::mxfp8: return decode<kE4m3>(codes[column]) * decode_e8m0(scales[column / 32]);
    case NarrowKind::nvfp4:
      return decode<kE2m1>(static_cast<uint8_t>(codes[column / 2] >> (column % 2 * 4) & 15)) *
             decode<kE4m3>(scales[column / 16]);
  }
  return 0;
}

__device__ float inverse_scale(const Operand& x) {
  return reinterpret_cast<const NarrowHeader*>(x.data)->inverse_scale;
}

__device__ float value(const void* data, DType dtype, int64_t index) {
  return dtype == DType::bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index])
                              : static_cast<const float*>(data)[index];
}

__global__ void __launch_bounds__(kEdge* kEdge)
    product_kernel(Operand a, Operand b, Matrix c, Vector bias, float beta) {
  __shared__ float a_tile[kEdge][kEdge + 1];
  __shared__ float b_tile[kEdge][kEdge + 1];
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kEdge;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kEdge;
  float sum = 0;
  for (int64_t k = 0; k < a.columns; k += kEdge) {
    a_tile[y][x] = element(a, first_row + y, k + x);
    b_tile[y][x] = element(b, first_column + y, k + x);
    __syncthreads();
    for (int i = 0; i < kEdge; ++i) sum += a_tile[y][i] * b_tile[x][i];
    __syncthreads();
  }
  const int64_t row = first_row + y;
  const int64_t column = first_column + x;
  if (row >= c.rows || column >= c.cols) return;
  float result = sum * (inverse_scale(a) * inverse_scale(b));
  if (bias.data != nullptr) result += value(bias.data, bias.dtype, column);
  const int64_t at = row * c.ld + column;
  if (beta != 0) result += value(c.data, c.dtype, at);
  if (c.dtype == DType::bf16) {
    static_cast<__nv_bfloat16*>(c.data)[at] = __float2bfloat16_rn(result);
  } else {
    static_cast<float*>(c.data)[at] = result;
  }
}

}  // namespace

void narrow_plain(CudaStream& stream, const NarrowGemmArgs& args) {
  const Operand a = operand(args.a);
  const Operand b = operand(args.b);
  launch(stream, "narrow_gemm", product_kernel,
         dim3(blocks_for(args.c.cols, kEdge), blocks_for(args.c.rows, kEdge)), dim3(kEdge, kEdge),
         0, a, b, args.c, args.bias, args.beta);
}

}  // namespace tutti::engine
