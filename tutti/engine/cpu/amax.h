// The largest magnitude of a matrix, f32 or bf16. NaN counts as larger than infinity; 0 of nothing.
#pragma once

#include "tutti/engine/cpu/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

float largest_magnitude(CpuStream& stream, const Matrix& x);

// Where an operation is asked for it (`amax` of ops.h), after the pass that made x.
inline void store_magnitude(Stream& stream, const Matrix& x, const Vector& amax) {
  if (amax) *amax.as<float>() = largest_magnitude(cpu_stream(stream), x);
}

}  // namespace tutti::engine
