// Weights of experts in MXFP4 (OCP Microscaling Formats 1.0, 2023) as gpt-oss publishes them, read
// as bf16, which holds each of their numbers exactly.
//
// A tensor NAME [E, in, out] then is NAME_blocks, U8 [E, out, in / 32, 16], of 32 codes e2m1 each,
// the first of two in the low four bits, and NAME_scales, U8 [E, out, in / 32]: a number is its
// code's times 2^(scale - 127).
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

// Whether the folder has `part` in MXFP4.
bool has_mxfp4(const HfFolder& folder, const HfPart& part);

// Throws usage where blocks and scales are not those of `part`.
void check_mxfp4(const HfFolder& folder, const HfPart& part);

// `count` numbers, a multiple of 32. Scales above 252 would make numbers beyond bf16: infinity; 255
// is NaN, whatever the code.
void decode_mxfp4(const uint8_t* blocks, const uint8_t* scales, int64_t count, bf16* out);

// Hands on the rows of a parameter of Tutti as `to`, an expert at a time; returns how many bytes it
// read. Throws as convert_elements does.
int64_t stream_mxfp4(const HfFolder& folder, const HfPart& part, DType to,
                     const AppendBytes& append);

}  // namespace tutti::checkpoint
