// The ceiling that every MFU is divided by: the best rate this machine's matrix library reaches.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {

// Best FLOP/s of C[s,s] = A[s,s] B[s,s] over `sizes` and `repeats` runs of each, on the stream's
// threads, with operands in whatever layout the library likes best (packing is not timed), in
// `dtype` with f32 accumulation; of f32 for bf16 where the processor has no AVX-512, as products of
// bf16 are made of f32 ones there. An upper bound for the gemm operation, which pays for packing.
// On a device it is the gemm operation's own best, over sizes that fill it.
double measure_gemm_peak(Stream& stream, DType dtype,
                         const std::vector<int64_t>& sizes = {2048, 3072, 4096}, int repeats = 5);

}  // namespace tutti::engine
