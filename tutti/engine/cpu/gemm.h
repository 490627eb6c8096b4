// The product behind cpu_gemm: handles the cases without arithmetic and dispatches the others to
// the fastest kernel.
#pragma once

#include "tutti/engine/cpu/stream.h"

namespace tutti::engine {

// OpTable::gemm without checks and recording.
void multiply(CpuStream& stream, const GemmArgs& args);

}  // namespace tutti::engine
