// Bandwidth of a group's collectives, compared with plain copies on the same cores.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/world/world.h"
#include "tutti/engine/stream.h"

namespace tutti::comm {

struct CollectiveBench {
  std::string name;    // "all_reduce", ...
  int64_t bytes = 0;   // of the full buffer: what all_gather receives, reduce_scatter sends
  double seconds = 0;  // median of batches, each the mean of calls one after the other
  // bytes / seconds, and that times the bytes that have to pass a rank's link per byte of the
  // buffer: 2 (n-1)/n for all_reduce, (n-1)/n for the others, 1 for broadcast and send_receive
  // (doc/PERFORMANCE.md of nccl-tests).
  double algorithm_bytes_per_second = 0;
  double bus_bytes_per_second = 0;
};

// Bytes copied per second by all ranks together, each from and to private memory of `bytes` bytes;
// best of several. At most `cores` ranks copy. Collective: every rank gets the same.
double measure_copies(World& world, engine::Stream& stream, int64_t bytes, int cores);

// Every collective in f32 at every size (rounded to whole elements for every rank), in place where
// possible, in an arena that ranks share. Collective. `progress` counts measurements.
std::vector<CollectiveBench> bench_collectives(
    World& world, engine::Stream& stream, const std::vector<int64_t>& sizes_bytes,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace tutti::comm
