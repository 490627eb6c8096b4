// Attention for any head size up to 256 and any mask, in f32 throughout: the fallback for cases
// that cuDNN's fused kernels do not support. Tiles of queries and keys are multiplied in shared
// memory; no T x T matrix is stored; no atomics, so results are bitwise reproducible. attend.h
// defines the computation; attention.h has the operations that fall back to it.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/attend.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {

inline constexpr int64_t kPlainHeadDim = 256;  // maximum

// Copies `starts` to the host, where a recorded operation counts the pairs of packed documents.
// Empty without starts or without a recorder.
std::vector<int32_t> read_starts(CudaStream& stream, const Vector& starts);

void attend(CudaStream& stream, const char* op, const Attend& args);
void attend_backward(CudaStream& stream, const char* op, const AttendBackward& args);
// Only the first part of attend_backward: delta = rowsum(d_out * out).
void attend_delta(CudaStream& stream, const char* op, const AttendBackward& args);

}  // namespace tutti::engine
