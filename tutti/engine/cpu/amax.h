// The largest magnitude (amax) of a matrix, f32 or bf16. NaN counts as larger than infinity; 0 if
// the matrix is empty.
#pragma once

#include "tutti/engine/cpu/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

float largest_magnitude(CpuStream& stream, const Matrix& x);

// Stores it for an operation with an `amax` argument (ops.h), after the pass that writes x.
inline void store_magnitude(Stream& stream, const Matrix& x, const Vector& amax) {
  if (amax) *amax.as<float>() = largest_magnitude(cpu_stream(stream), x);
}

}  // namespace tutti::engine
