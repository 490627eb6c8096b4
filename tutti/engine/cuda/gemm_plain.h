// Products of f32 or bf16 matrices of any size, leading dimension and alignment, by our own tiles
// (tile_product.h): what cuBLASLt has no algorithm for. ops.h states the contract.
#pragma once

#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

// m, n and k are not zero. The result is rounded once.
void gemm_plain(CudaStream& stream, const GemmArgs& args);

}  // namespace tutti::engine
