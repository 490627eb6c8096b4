// Products of operands below 16 bits of any kind and size, element by element: the fallback if
// cuBLASLt has no algorithm. Codes are decoded and accumulated in f32, as on the CPU.
#pragma once

#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/narrow_ops.h"

namespace tutti::engine {

void narrow_plain(CudaStream& stream, const NarrowGemmArgs& args);

}  // namespace tutti::engine
