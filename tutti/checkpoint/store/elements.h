// Element types of parameters in files: f32, bf16 and f16, and their conversion.
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/base/dtype.h"

namespace tutti::checkpoint {

// IEEE half precision to and from f32; to_f16_bits rounds to nearest even, values from 65520 on
// become infinite.
float f16_bits_to_f32(uint16_t bits);
uint16_t to_f16_bits(float value);

bool is_parameter_type(DType type);  // f32, bf16 or f16

// Converts `count` parameters; widening is exact, narrowing rounds to nearest even. `from` and `to`
// may be equal in type, but not in memory. Throws corrupt naming `name` (file and tensor) and the
// element's index (counted from `first_index`) for a NaN or infinity, and usage for a finite value
// that is too large for `to_type`.
void convert_elements(DType from_type, const void* from, DType to_type, void* to, int64_t count,
                      std::string_view name, int64_t first_index = 0);

}  // namespace tutti::checkpoint
