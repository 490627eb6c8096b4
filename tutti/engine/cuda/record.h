// The begin and end of a CUDA operation, like cpu/record.h:
//
//   const OpRecord what = describe(args);  // engine/describe.h
//   CudaStream& cuda = cuda_stream(stream);
//   const double begin = begin_op(cuda);
//   launch(cuda, what.op, kernel, grid, block, shared_bytes, ...);
//   record(cuda, what, begin);
//
// With a recorder the stream is synchronised at both ends and the operation is timed on the device
// (op_timer.h), so the times are exact but the step as a whole is slower. A record begins when the
// host calls the operation. A blocking stream is synchronised at the end.
#pragma once

#include "tutti/base/clock.h"
#include "tutti/engine/cuda/check.h"
#include "tutti/engine/cuda/op_timer.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {

inline double begin_op(CudaStream& stream) {
  stream.count_operation();
  if (stream.recorder() == nullptr) return 0;
  stream.synchronize();
  const double begin_seconds = monotonic_seconds();
  stream.timer().begin();
  return begin_seconds;
}

// Ends an operation that is not recorded.
inline void finish_op(CudaStream& stream, const char* op) {
  if (!stream.blocking() && stream.recorder() == nullptr) return;
  cuda_check(cudaStreamSynchronize(stream.handle()), "cudaStreamSynchronize", op);
}

inline void record(CudaStream& stream, OpRecord what, double begin_seconds) {
  if (stream.recorder() == nullptr) return finish_op(stream, what.op);
  what.begin_seconds = begin_seconds;
  what.end_seconds = begin_seconds + stream.timer().end(what.op);
  stream.recorder()->add(what);
}

}  // namespace tutti::engine
