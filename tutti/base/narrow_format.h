// Storage of matrices in formats below 16 bits: codes of narrow_float.h and their scales.
//
// e4m3, e5m2: one scale per tensor, f32. Codes are x * scale with scale = largest / amax
// (per-tensor current scaling: amax is the largest magnitude of this very tensor).
//
// mxfp8: E4M3, blocks of 32 with an E8M0 scale, whose exponent is floor(log2(amax)) - 8 of the
// block's amax; larger values saturate (OCP Microscaling Formats 1.0, section 6.3).
//
// nvfp4: E2M1, blocks of 16 with an E4M3 scale, and one f32 scale per tensor, 6 * 448 / amax; a
// block's is amax / 6 times that, rounded to E4M3 (NVIDIA, "Pretraining Large Language Models with
// NVFP4", arXiv 2509.25149, appendix C).
//
// Blocks lie along the columns of a matrix, the inner dimension of the product that reads it. What
// is not finite stays so: where E4M3 or E5M2 have a NaN or infinity it is an element's, else the
// scale of its block is NaN. A tensor or block of zeros has scale 1 (E8M0: 2^-127; E4M3: 0).
#pragma once

#include <cstdint>

#include "tutti/base/narrow_float.h"

namespace tutti {

enum class NarrowKind : uint8_t { e4m3, e5m2, mxfp8, nvfp4 };

struct NarrowFormat {
  const char* name;
  int element_bits;
  int block_elements;  // that share a scale; 0: the tensor
  int scale_bits;
  bool tensor_scale;  // one f32

  // Block scales included.
  constexpr double element_bytes() const {
    const double scale = block_elements > 0 ? static_cast<double>(scale_bits) / block_elements : 0;
    return (element_bits + scale) / 8;
  }
};
inline constexpr NarrowFormat kNarrowFormats[] = {{"e4m3", 8, 0, 0, true},
                                                  {"e5m2", 8, 0, 0, true},
                                                  {"mxfp8", 8, 32, 8, false},
                                                  {"nvfp4", 4, 16, 8, true}};
constexpr const NarrowFormat& narrow_format(NarrowKind kind) {
  return kNarrowFormats[static_cast<int>(kind)];
}

// Where the parts of a matrix [rows, columns] lie in one piece of memory. At 0: the NarrowHeader.
// At codes_offset: rows of codes, row_bytes apart, a multiple of 16; of two E2M1 codes in a byte
// the first is in the low bits; codes behind the last column are zero. At scales_offset: block
// scales, `blocks` of every row: row after row, or as the products of a device want them, for which
// there is room (rows in multiples of 128, blocks of 4).
struct NarrowHeader {
  float inverse_scale;  // what products multiply with: 1 / scale; 1 without a tensor's scale
  float amax;           // the tensor's, where it has a scale
};
struct NarrowLayout {
  int64_t row_bytes = 0;
  int64_t blocks = 0;
  int64_t codes_offset = 0;
  int64_t scales_offset = 0;
  int64_t bytes = 0;
  // What is read and written, without padding: codes, block scales, the tensor's scale.
  int64_t payload_bytes = 0;
};
constexpr NarrowLayout narrow_layout(NarrowKind kind, int64_t rows, int64_t columns) {
  const auto up = [](int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; };
  const NarrowFormat& format = narrow_format(kind);
  const int64_t row = (columns * format.element_bits + 7) / 8;
  NarrowLayout out;
  out.row_bytes = up(row, 16);
  if (format.block_elements > 0) {
    out.blocks = (columns + format.block_elements - 1) / format.block_elements;
  }
  out.codes_offset = 256;
  out.scales_offset = up(out.codes_offset + rows * out.row_bytes, 256);
  out.bytes = out.scales_offset + up(up(rows, 128) * up(out.blocks, 4), 256);
  out.payload_bytes = rows * (row + out.blocks) + (format.tensor_scale ? 4 : 0);
  return out;
}

constexpr bool is_finite_magnitude(float amax) {
  return std::bit_cast<uint32_t>(amax) < 0x7f800000U;
}

// What elements are multiplied with before encoding (e4m3, e5m2) or before their block's scale
// (nvfp4): largest / amax; 1 where amax is zero or not finite, or the format has no such scale.
constexpr float tensor_scale(NarrowKind kind, float amax) {
  if (kind == NarrowKind::mxfp8 || amax == 0 || !is_finite_magnitude(amax)) return 1;
  const float largest = kind == NarrowKind::e4m3   ? kLargest<kE4m3>
                        : kind == NarrowKind::e5m2 ? kLargest<kE5m2>
                                                   : kLargest<kE2m1> * kLargest<kE4m3>;
  const float scale = largest / amax;
  // Its inverse must be normal.
  return scale < exact_power_of_two(126) ? scale : exact_power_of_two(126);
}

constexpr uint8_t mxfp8_scale(float block_amax) {
  if (!is_finite_magnitude(block_amax)) return kE8m0Nan;
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(block_amax) >> 23) - 127;
  return encode_e8m0(exponent - kE4m3.largest_exponent());
}
// What elements of the block are multiplied with before encoding.
constexpr float mxfp8_factor(uint8_t scale) {
  if (scale == kE8m0Nan) return decode_e8m0(scale);
  return exact_power_of_two(127 - static_cast<int>(scale));
}

constexpr uint8_t nvfp4_scale(float block_amax, float tensor_scale) {
  if (!is_finite_magnitude(block_amax)) return static_cast<uint8_t>(kE4m3.nan_code());
  return encode<kE4m3>(block_amax / kLargest<kE2m1> * tensor_scale, Overflow::saturate);
}
// A template because nvcc 13.0 cannot name the format in a plain function's copy for the host.
template <NarrowFloat scale_format = kE4m3>
constexpr float nvfp4_factor(uint8_t scale, float tensor_scale) {
  return scale == 0 ? 0.0F : tensor_scale / decode<scale_format>(scale);
}

}  // namespace tutti
