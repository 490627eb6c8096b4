// Products for few rows (decode_ops.h) with dot products of bf16 pairs (VDPBF16PS). Codes of packed
// weights are exact in bf16, so that 32 columns take one instruction per row of A.
#pragma once

#include "tutti/engine/cpu/stream.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

// Whether the current instruction set and the types allow decode_gemm_bf16.
bool decode_gemm_bf16_possible(const DecodeGemmArgs& args);

// OpTable::decode_gemm for at most kFewRows rows, without recording. C must not be empty.
void decode_gemm_bf16(CpuStream& stream, const DecodeGemmArgs& args);

}  // namespace tutti::engine
