// Weights in FP8 with a scale for each block of 128 x 128, as DeepSeek-V3 publishes them
// ("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}).
//
// A matrix NAME [rows, columns] then is NAME, F8_E4M3, and NAME_scale_inv, F32 or BF16
// [ceil(rows / 128), ceil(columns / 128)]: an element is its code's number times the scale of its
// block. The products are kept in bf16, in which they are rounded, or as the import is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/dtype.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/huggingface/stream.h"
#include "tutti/checkpoint/store/snapshot.h"

namespace tutti::checkpoint {

inline constexpr int64_t kFp8Block = 128;

std::string fp8_scales(const HfPart& part);  // name of the tensor

// Whether the folder has `part` in FP8.
bool has_fp8(const HfFolder& folder, const HfPart& part);

// Throws usage where codes and scales are not those of `part` or a scale is not above 0, corrupt
// where one is not finite, unsupported where `part` is no matrix.
void check_fp8(const HfFolder& folder, const HfPart& part);

// out[i] = code i times `scale`.
void decode_fp8(const uint8_t* codes, float scale, int64_t count, float* out);

// Hands on the rows of a parameter of Tutti as `to`, a row of blocks at a time, or where rows
// change their order all at once; returns how many bytes it read. Throws as convert_elements does.
int64_t stream_fp8(const HfFolder& folder, const HfPart& part, DType to, RopeLayout layout,
                   int64_t head_dim, const AppendBytes& append);

}  // namespace tutti::checkpoint
