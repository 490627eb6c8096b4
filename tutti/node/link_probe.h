// Bandwidth between ranks on several nodes: each link between neighbours, and a collective of all.
#pragma once

#include <vector>

#include "tutti/comm/world/world.h"
#include "tutti/engine/stream.h"

namespace tutti::node {

struct LinkProbe {
  struct Link {
    int64_t from = 0;             // rank; the other is the next one, the last rank's is rank 0
    double latency_seconds = 0;   // of a message of four bytes, one way: the median of round trips
    double bytes_per_second = 0;  // one way, median of transfers of 16 MiB
  };
  std::vector<Link> links;  // [rank]; of two ranks there is one
  // Of 16 MiB, as nccl-tests count: 2 (n-1)/n times the bytes over the median time.
  double all_reduce_bytes_per_second = 0;
};

// Collective: every rank gets the same. Links that share no rank are measured at the same time.
LinkProbe probe_links(comm::World& world, engine::Stream& stream);

}  // namespace tutti::node
