// Recording of CPU kernels. A kernel contains
//
//   const OpRecord what = describe(args);  // engine/describe.h
//   const double begin = begin_op(stream);
//   ... pass pointers and dimensions to the library or the loops ...
//   record(stream, what, begin);
//
// The clock is read only if the stream has a recorder.
#pragma once

#include "tutti/base/clock.h"
#include "tutti/engine/cpu/stream.h"

namespace tutti::engine {

inline double begin_op(Stream& stream) {
  cpu_stream(stream).enter();
  return stream.recorder() != nullptr ? monotonic_seconds() : 0;
}

inline void record(Stream& stream, OpRecord what, double begin_seconds) {
  if (stream.recorder() == nullptr) return;
  what.begin_seconds = begin_seconds;
  what.end_seconds = monotonic_seconds();
  stream.recorder()->add(what);
}

}  // namespace tutti::engine
