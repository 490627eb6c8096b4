// The measured peak that MFU is relative to: the best rate of this machine's matrix library.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {

// Best FLOP/s of C[s,s] = A[s,s] B[s,s] over `sizes` and `repeats` runs of each, on the stream's
// threads, in `dtype` with f32 accumulation. Operands are in the library's preferred layout, and
// packing is not timed. On processors without AVX-512, bf16 is measured as f32, which bf16 products
// are computed in there. It is an upper bound for the gemm operation, which also packs. On a device
// it is the best rate of the gemm operation itself, over sizes that fill the device.
double measure_gemm_peak(Stream& stream, DType dtype,
                         const std::vector<int64_t>& sizes = {2048, 3072, 4096}, int repeats = 5);

}  // namespace tutti::engine
