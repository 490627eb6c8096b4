// Conversion of contiguous elements, for kernels that do not compute in the type of their operands.
#pragma once

#include <cstdint>

#include "tutti/base/dtype.h"

namespace tutti::engine {

void convert_elements(const bf16* x, float* out, int64_t count);
void convert_elements(const float* x, bf16* out, int64_t count);  // to nearest even; keeps NaN

}  // namespace tutti::engine
