// Conversion of contiguous elements, for kernels that compute in another type than their operands.
#pragma once

#include <cstdint>

#include "tutti/base/dtype.h"

namespace tutti::engine {

void convert_elements(const bf16* x, float* out, int64_t count);
void convert_elements(const float* x, bf16* out, int64_t count);  // to nearest even, NaN stays NaN

}  // namespace tutti::engine
