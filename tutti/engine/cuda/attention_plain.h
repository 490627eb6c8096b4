// Attention of any head size up to 256, in f32 throughout, whichever tokens are seen: what cuDNN's
// fused kernels do not take. Tiles of queries and keys meet in shared memory; nothing of size T x T
// is stored; no atomics, so the bits are the same in every run. attend.h says what is computed;
// attention.h has the operations of the table that come here where cuDNN declines.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/attend.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {

inline constexpr int64_t kPlainHeadDim = 256;  // at most

// A recorded operation counts the pairs that packed documents leave, on the host: their starts.
// Empty where there are none, or nothing is recorded.
std::vector<int32_t> read_starts(CudaStream& stream, const Vector& starts);

void attend(CudaStream& stream, const char* op, const Attend& args);
void attend_backward(CudaStream& stream, const char* op, const AttendBackward& args);
// Its first part alone: delta = rowsum(d_out * out).
void attend_delta(CudaStream& stream, const char* op, const AttendBackward& args);

}  // namespace tutti::engine
