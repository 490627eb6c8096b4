// Weights as inference reads them: codes of 8 or 4 bits, one scale for each group of 32 columns.
//
// int8   x = scale * code, code in -127 .. 127; scale = amax / 127 of the group.
// int4   x = scale * (code - 8), code in 0 .. 15; the value of largest magnitude becomes -8 * scale
//        or little less: of a few scales near that the one with the least squared error.
//
// Scales are bf16, chosen before the codes: codes make up for what rounding a scale costs. A group
// of zeros has scale 0; one with a value that is not finite has scale NaN.
//
// A matrix [rows, columns] lies in one piece: rows of codes, row_bytes apart, a multiple of 32;
// then the scales, row after row. Rows are filled up with codes of zero, of int8 to whole groups,
// of int4 to whole blocks of four groups: 32 words of 16 bits, of which bits 4 g to 4 g + 3 of word
// w are column w of the block's group g, so that one shift of a vector gives 32 columns in order.
#pragma once

#include <cstdint>

#include "tutti/base/dtype.h"

namespace tutti {

enum class PackKind : uint8_t { int8, int4 };
constexpr const char* pack_name(PackKind kind) { return kind == PackKind::int8 ? "int8" : "int4"; }

inline constexpr int64_t kPackGroup = 32;              // columns
inline constexpr int64_t kPackBlock = 4 * kPackGroup;  // of int4

struct PackedLayout {
  int64_t groups = 0;  // of a row
  int64_t row_bytes = 0;
  int64_t scales_offset = 0;
  int64_t bytes = 0;
};
constexpr PackedLayout packed_layout(PackKind kind, int64_t rows, int64_t columns) {
  PackedLayout out;
  out.groups = (columns + kPackGroup - 1) / kPackGroup;
  out.row_bytes = kind == PackKind::int8
                      ? out.groups * kPackGroup
                      : (columns + kPackBlock - 1) / kPackBlock * (kPackBlock / 2);
  out.scales_offset = rows * out.row_bytes;
  out.bytes = out.scales_offset + rows * out.groups * int64_t{sizeof(bf16)};
  return out;
}

// One row: `values` [columns] to or from its codes [row_bytes] and scales [groups].
void pack_row(PackKind kind, const float* values, int64_t columns, uint8_t* codes, bf16* scales);
void unpack_row(PackKind kind, const uint8_t* codes, const bf16* scales, int64_t columns,
                float* values);

// The numbers that the codes of a row stand for, of int4 code - 8: [columns], to codes as pack_row
// lays them out, and back.
void set_codes(PackKind kind, const int8_t* numbers, int64_t columns, uint8_t* codes);
void get_codes(PackKind kind, const uint8_t* codes, int64_t columns, int8_t* numbers);

}  // namespace tutti
