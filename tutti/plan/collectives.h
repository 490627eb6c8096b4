// The time of a collective from latency and bandwidth over the tiers of a system.
//
// S bytes in the full buffer, n ranks that are `stride` places apart. On a fabric whose nearest
// tier joins G chips, k = min(n, max(1, G / stride)) of them are near each other, in N = n / k
// domains (and so on outwards). Bandwidths are one direction of one chip, times the fitted ratio.
// All k of a domain have their own way out of it; where a group skips ranks (stride > 1), k - 1 of
// them only to the share rail_ratio: other groups' members lie between, and rings of old NCCL leave
// a node by one of their members. Software that sends that way from whole nodes too states a
// node_rail_ratio below 1.
//
//   ring             all-reduce 2 (n-1) a + 2 (n-1)/n S / B, reduce-scatter and all-gather half
//   tree             all-reduce 2 log2(N) a_out + 2 (k-1) a_in + 2 S / B   (B x 0.92)
//   in-switch (nvls) all-reduce a + (n+1)/n S / B on a tier with reduction: nvls; sharp outside
//   hierarchical     reduce-scatter near (S), all-reduce far (S/k), all-gather near (S)
//   all-to-all       S/n to each other rank: near part over the link, far part over the network
//
// all_reduce_seconds takes the least of those that apply, as NCCL does. Sources: NCCL's tuning
// model (NVIDIA/nccl: src/graph/tuning.cc), nccl-tests doc/PERFORMANCE.md for the bus factors.
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/catalog/systems.h"
#include "tutti/plan/constants.h"

namespace tutti::plan {

// Which ranks: n of them, consecutive members `stride` ranks apart.
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
// Infinite where no tier of the group sums inside the network.
double switch_all_reduce_seconds(const Network& network, const Group& group, double bytes);
double hierarchical_all_reduce_seconds(const Network& network, const Group& group, double bytes);

double all_reduce_seconds(const Network& network, const Group& group, double bytes);
// Of all-gather or reduce-scatter, whose full buffer has `bytes`.
double gather_seconds(const Network& network, const Group& group, double bytes);
// Every rank holds `bytes`, of which it sends 1/n to each. Where `copies` > 1, they are that many
// of each token, to random ranks, and of those for one far domain with the share s of all ranks
// only one crosses: 1 - (1 - s)^k of k copies. The other ones are made over the link there, which
// so carries as much as if all ranks were near.
double all_to_all_seconds(const Network& network, const Group& group, double bytes,
                          double copies = 0);
// From a rank to a neighbour, over the tier that joins ranks `span` places apart.
double send_seconds(const Network& network, int64_t span, double bytes);

}  // namespace tutti::plan
