// Weights of experts in MXFP4 (OCP Microscaling Formats 1.0, 2023) as gpt-oss publishes them, read
// as bf16, which represents each of their values exactly.
//
// A tensor NAME [E, in, out] is then stored as NAME_blocks, U8 [E, out, in / 32, 16], with 32 codes
// e2m1 each, the first of two in the low four bits, and NAME_scales, U8 [E, out, in / 32]: a value
// is its code's value times 2^(scale - 127).
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/dtype.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/store/snapshot.h"

namespace tutti::checkpoint {

inline constexpr int64_t kMxfp4Block = 32;

std::string mxfp4_blocks(const HfPart& part);  // names of the tensors
std::string mxfp4_scales(const HfPart& part);

// Whether the folder stores `part` in MXFP4.
bool has_mxfp4(const HfFolder& folder, const HfPart& part);

// Throws usage if blocks and scales do not match `part`.
void check_mxfp4(const HfFolder& folder, const HfPart& part);

// Decodes `count` values, a multiple of 32. Scales above 252 give values beyond bf16: infinity; 255
// is NaN for every code.
void decode_mxfp4(const uint8_t* blocks, const uint8_t* scales, int64_t count, bf16* out);

// Passes on the rows of a parameter of Tutti as `to`, one expert at a time; returns the number of
// bytes read. Throws like convert_elements.
int64_t stream_mxfp4(const HfFolder& folder, const HfPart& part, DType to,
                     const AppendBytes& append);

}  // namespace tutti::checkpoint
