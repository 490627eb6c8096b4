// Product of bf16 matrices for AVX512_BF16 (VDPBF16PS). It packs both operands into the order in
// which its inner loop reads them, so it is equally fast in every orientation. oneDNN 2.6 is slower
// if A is transposed (weight gradients).
#pragma once

#include "tutti/engine/cpu/stream.h"

namespace tutti::engine {

// Whether the current instruction set and the types allow gemm_bf16.
bool gemm_bf16_possible(const GemmArgs& args);

// OpTable::gemm without recording. m, n and k must not be zero. The result does not depend on the
// number of threads.
void gemm_bf16(CpuStream& stream, const GemmArgs& args);

// Scratch memory that is enough for `args` and for every product with fewer rows, columns or depth.
int64_t gemm_bf16_scratch_bytes(const CpuStream& stream, const GemmArgs& args);

}  // namespace tutti::engine
