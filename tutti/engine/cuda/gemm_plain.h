// Products of f32 or bf16 matrices of any size, leading dimension and alignment, by Tutti's tile
// kernels (tile_product.h): the fallback if cuBLASLt has no algorithm. ops.h states the contract.
#pragma once

#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

// m, n and k must not be zero. The result is rounded once.
void gemm_plain(CudaStream& stream, const GemmArgs& args);

}  // namespace tutti::engine
