// The product behind cpu_gemm: settles the cases without arithmetic and gives the rest to the
// kernel that is fastest for it.
#pragma once

#include "tutti/engine/cpu/stream.h"

namespace tutti::engine {

// As OpTable::gemm, without checks and recording.
void multiply(CpuStream& stream, const GemmArgs& args);

}  // namespace tutti::engine
