// How a CPU kernel notes what it executed. A kernel writes
//
//   const double begin = begin_op(stream);
//   ... hand pointers and dimensions to the library or the loops ...
//   record(stream, "norm_forward", {n, h}, 0, bytes, begin);
//
// with dims, flops and bytes computed from what was handed over. The clock is read only while the
// stream has a recorder.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/engine/cpu/stream.h"

namespace tutti::engine {

inline double begin_op(Stream& stream) {
  cpu_stream(stream).enter();
  return stream.recorder() != nullptr ? monotonic_seconds() : 0;
}

inline void record(Stream& stream, const char* op, std::initializer_list<int64_t> dims,
                   double flops, double bytes, double begin_seconds) {
  if (stream.recorder() == nullptr) return;
  OpRecord entry;
  entry.op = op;
  TUTTI_CHECK(dims.size() <= entry.dims.size(), "{}: {} dims", op, dims.size());
  std::copy(dims.begin(), dims.end(), entry.dims.begin());
  entry.flops = flops;
  entry.bytes = bytes;
  entry.begin_seconds = begin_seconds;
  entry.end_seconds = monotonic_seconds();
  stream.recorder()->add(entry);
}

}  // namespace tutti::engine
