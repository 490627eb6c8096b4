// Matrices packed to 8 or 4 bits in files of transformers: the format "pack-quantized" of
// compressed-tensors (packing_config.h), with what base/packed_weights.h packs in memory.
//
// A matrix NAME.weight [rows, columns], columns a multiple of 32, then is
//   NAME.weight_packed  I32 [rows, columns * bits / 32]: the number of a code plus 2^(bits - 1) in
//                       `bits` bits, the first column of a word in its lowest ones;
//   NAME.weight_scale   BF16 [rows, columns / 32]: an element is its number times the scale;
//   NAME.weight_shape   I64 [2]: rows, columns.
// Rows are those of NAME.weight, [out, in] also of GPT-2, whose files have [in, out] otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/packed_weights.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/huggingface/stream.h"

namespace tutti::checkpoint {

// The tensors of `part`.
std::string packed_codes(const HfPart& part);
std::string packed_scales(const HfPart& part);
std::string packed_shape(const HfPart& part);

// `part` as a matrix [out, in], as it is packed.
HfPart packed_part(const HfPart& part);

int64_t packed_words(PackKind kind, int64_t columns);  // I32 of a row

// Packs `values` [columns], a multiple of 32, as pack_row does.
void pack_words(PackKind kind, const float* values, int64_t columns, uint8_t* words, bf16* scales);
// The numbers that words stand for.
void unpack_words(PackKind kind, const uint8_t* words, int64_t columns, int8_t* numbers);

// Whether the folder has `part` packed.
bool has_packed(const HfFolder& folder, const HfPart& part);

// Throws usage where the tensors are not those of `part` packed as `kind`.
void check_packed(const HfFolder& folder, const HfPart& part, PackKind kind);

// Hands on the rows of a parameter of Tutti, a few at a time, as numbers of codes and scales;
// returns how many bytes it read. Throws unsupported for the number -128, which Tutti's int8 lacks.
using PackedRows = std::function<void(int64_t rows, const int8_t* numbers, const bf16* scales)>;
int64_t stream_packed(const HfFolder& folder, const HfPart& part, PackKind kind, RopeLayout layout,
                      int64_t head_dim, const PackedRows& sink);

}  // namespace tutti::checkpoint
