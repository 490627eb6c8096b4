// Products of operands below 16 bits of any kind and size, element by element: what cuBLASLt has no
// algorithm for. Codes are decoded and added up in f32, as the CPU does.
#pragma once

#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/narrow_ops.h"

namespace tutti::engine {

void narrow_plain(CudaStream& stream, const NarrowGemmArgs& args);

}  // namespace tutti::engine
