// The time of a collective from latency and bandwidth over the tiers of a system.
//
// S bytes in the full buffer, n ranks with a `stride` between neighbours. On a fabric whose nearest
// tier joins G chips, k = min(n, max(1, G / stride)) of them are near each other, in N = n / k
// domains (and so on outwards). Bandwidths are one direction of one chip, times the fitted ratio.
// All k ranks of a domain have their own uplink; if a group skips ranks (stride > 1), k - 1 of the
// uplinks count only with the share rail_ratio: members of other groups are in between, and rings
// of old NCCL leave a node by one of their members. For software that sends this way even from
// whole nodes a node_rail_ratio below 1 is stated.
//
//   ring             all-reduce 2 (n-1) a + 2 (n-1)/n S / B, reduce-scatter and all-gather half
//   tree             all-reduce 2 log2(N) a_out + 2 (k-1) a_in + 2 S / B   (B x 0.92)
//   in-switch (nvls) all-reduce a + (n+1)/n S / B on a tier with reduction: nvls; sharp outside
//   hierarchical     reduce-scatter near (S), all-reduce far (S/k), all-gather near (S)
//   all-to-all       S/n to each other rank: near part over the link, far part over the network
//
// all_reduce_seconds takes the fastest applicable algorithm, as NCCL does. Sources: NCCL's tuning
// model (NVIDIA/nccl: src/graph/tuning.cc), nccl-tests doc/PERFORMANCE.md for the bus factors.
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/catalog/systems.h"
#include "tutti/plan/constants.h"

namespace tutti::plan {

// A group: n ranks, consecutive members `stride` ranks apart.
struct Group {
  int64_t ranks = 1;
  int64_t stride = 1;
};

struct Network {
  const catalog::System* system = nullptr;
  double link_ratio = 1;
  double network_ratio = 1;
  double rail_ratio = 1;
  double node_rail_ratio = 1;
};

double ring_all_reduce_seconds(const Network& network, const Group& group, double bytes);
double tree_all_reduce_seconds(const Network& network, const Group& group, double bytes);
// Infinite if no tier of the group reduces inside the network.
double switch_all_reduce_seconds(const Network& network, const Group& group, double bytes);
double hierarchical_all_reduce_seconds(const Network& network, const Group& group, double bytes);

double all_reduce_seconds(const Network& network, const Group& group, double bytes);
// Of an all-gather or reduce-scatter, whose full buffer has `bytes`.
double gather_seconds(const Network& network, const Group& group, double bytes);
// Every rank holds `bytes`, and sends 1/n of it to each rank. With `copies` > 1 the bytes are that
// many copies of each token, to random ranks, and of the copies for one far domain with the share s
// of all ranks only one is sent: 1 - (1 - s)^k of k copies. The others are made over the link
// there, which then carries as much as if all ranks were near.
double all_to_all_seconds(const Network& network, const Group& group, double bytes,
                          double copies = 0);
// From a rank to a neighbour, over the tier that joins ranks at distance `span`.
double send_seconds(const Network& network, int64_t span, double bytes);

}  // namespace tutti::plan
