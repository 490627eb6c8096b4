// Copy bandwidth of memory: on the cores of this machine, or on a device.
#pragma once

#include <cstdint>

#include "tutti/engine/stream.h"

namespace tutti::node {

// Copy bandwidth of arrays of `bytes` (far larger than any cache), on all cores: bytes read plus
// bytes written per second, best of `repeats`.
double measure_copy_bandwidth(int repeats = 5, int64_t bytes = int64_t{512} << 20);
// Of the memory that the stream works on.
double measure_copy_bandwidth(engine::Stream& stream);

}  // namespace tutti::node
