#include "tutti/plan/collectives.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/base/real.h"

namespace tutti::plan {
namespace {

using catalog::FabricTier;

// Mapping of a group to the tiers: `near` members inside one domain of tier `index`.
struct Level {
  const FabricTier* tier = nullptr;
  int64_t ranks = 1;     // of the previous level's domains (or single ranks) that it joins
  double bandwidth = 0;  // bytes per second of one rank, one direction
  double latency = 0;
};

constexpr int kMostLevels = 4;  // the catalog refuses fabrics of more tiers
struct Levels {
  Level level[kMostLevels];
  int count = 0;
};

double tier_bandwidth(const Network& network, size_t index) {
  const FabricTier& tier = network.system->tiers[index];
  const double ratio = index == 0 ? network.link_ratio : network.network_ratio;
  return tier.bytes_per_second / tier.oversubscription * ratio;
}

Levels levels_of(const Network& network, const Group& group) {
  Levels out;
  int64_t inside = 1;  // members of the group within the domains processed so far
  const auto& tiers = network.system->tiers;
  for (size_t i = 0; i < tiers.size() && inside < group.ranks && out.count < kMostLevels; ++i) {
    const int64_t domain = tiers[i].chips;
    int64_t within = group.ranks;
    if (domain > 0) within = std::clamp<int64_t>(domain / group.stride, 1, group.ranks);
    if (within <= inside) continue;
    out.level[out.count++] = {&tiers[i], (within + inside - 1) / inside, tier_bandwidth(network, i),
                              tiers[i].latency_seconds};
    inside = within;
  }
  return out;
}

// Number of uplinks of a domain with `members` of the group that the group can use.
double uplinks_of(const Network& network, const Group& group, double members) {
  return 1 + (members - 1) * (group.stride > 1 ? network.rail_ratio : network.node_rail_ratio);
}

// Bytes of a ring over all members that each level's links carry per rank: the ring crosses a
// domain's boundary once, and the members of the domain share its uplinks.
double ring_seconds(const Network& network, const Group& group, double bytes_on_wire,
                    int64_t steps_factor) {
  const Levels levels = levels_of(network, group);
  double slowest = 0;
  double latency = 0;
  int64_t inside = 1;
  for (int i = 0; i < levels.count; ++i) {
    const Level& level = levels.level[i];
    slowest = std::max(
        slowest, bytes_on_wire / (level.bandwidth * uplinks_of(network, group, real(inside))));
    latency += real(steps_factor * (level.ranks - 1)) * level.latency;
    inside *= level.ranks;
  }
  return latency + slowest;
}

}  // namespace

double ring_all_reduce_seconds(const Network& network, const Group& group, double bytes) {
  if (group.ranks <= 1) return 0;
  const double n = real(group.ranks);
  return ring_seconds(network, group, 2 * (n - 1) / n * bytes, 2);
}

double tree_all_reduce_seconds(const Network& network, const Group& group, double bytes) {
  if (group.ranks <= 1) return 0;
  const Levels levels = levels_of(network, group);
  double latency = 0;
  double slowest = 0;
  int64_t inside = 1;
  for (int i = 0; i < levels.count; ++i) {
    const Level& level = levels.level[i];
    const double hops =
        i == 0 && levels.count > 1 ? real(level.ranks - 1) : std::log2(real(level.ranks));
    latency += 2 * hops * level.latency;
    slowest = std::max(
        slowest, 2 * bytes / (0.92 * level.bandwidth * uplinks_of(network, group, real(inside))));
    inside *= level.ranks;
  }
  return latency + slowest;
}

double switch_all_reduce_seconds(const Network& network, const Group& group, double bytes) {
  if (group.ranks <= 1) return 0;
  const Levels levels = levels_of(network, group);
  double seconds = 0;
  double part = bytes;  // bytes that a rank passes outwards: the near levels divide them
  for (int i = 0; i < levels.count; ++i) {
    const Level& level = levels.level[i];
    if (level.tier->reduction.empty()) return std::numeric_limits<double>::infinity();
    const double n = real(level.ranks);
    // One crossing up and one down at the same time; NVLS has a fixed start of about 25 us.
    const double start = level.tier->reduction == "nvls" ? 25e-6 : 2 * level.latency;
    seconds += start + (n + 1) / n * part / level.bandwidth;
    part /= uplinks_of(network, group, n);
  }
  return seconds;
}

double hierarchical_all_reduce_seconds(const Network& network, const Group& group, double bytes) {
  const Levels levels = levels_of(network, group);
  if (levels.count < 2) return ring_all_reduce_seconds(network, group, bytes);
  double seconds = 0;
  double part = bytes;
  for (int i = 0; i + 1 < levels.count; ++i) {
    const Level& level = levels.level[i];
    const double n = real(level.ranks);
    seconds += 2 * ((n - 1) * level.latency + (n - 1) / n * part / level.bandwidth);
    part /= uplinks_of(network, group, n);
  }
  const Level& last = levels.level[levels.count - 1];
  const double n = real(last.ranks);
  return seconds + 2 * ((n - 1) * last.latency + (n - 1) / n * part / last.bandwidth);
}

double all_reduce_seconds(const Network& network, const Group& group, double bytes) {
  return std::min({ring_all_reduce_seconds(network, group, bytes),
                   tree_all_reduce_seconds(network, group, bytes),
                   switch_all_reduce_seconds(network, group, bytes),
                   hierarchical_all_reduce_seconds(network, group, bytes)});
}

double gather_seconds(const Network& network, const Group& group, double bytes) {
  if (group.ranks <= 1) return 0;
  const double n = real(group.ranks);
  const double ring = ring_seconds(network, group, (n - 1) / n * bytes, 1);
  // Far first, in pieces of 1/k, then near: fewer hops with many domains.
  const Levels levels = levels_of(network, group);
  double seconds = 0;
  double part = bytes;
  for (int i = 0; i < levels.count; ++i) {
    const Level& level = levels.level[i];
    const double m = real(level.ranks);
    // Recursive doubling instead of a ring's hops if there are many domains.
    seconds +=
        std::min(m - 1, 2 * std::log2(m)) * level.latency + (m - 1) / m * part / level.bandwidth;
    part /= uplinks_of(network, group, m);
  }
  return std::min(ring, seconds);
}

double all_to_all_seconds(const Network& network, const Group& group, double bytes, double copies) {
  if (group.ranks <= 1) return 0;
  const Levels levels = levels_of(network, group);
  const double n = real(group.ranks);
  double slowest = 0;
  double latency = 0;
  int64_t inside = 1;
  for (int i = 0; i < levels.count; ++i) {
    const Level& level = levels.level[i];
    // Bytes that leave the nearer domain. Beyond a node all of them pass the node's adapters and
    // the tier behind them, however far they go; bytes for farther domains do not use the links
    // inside their own node. If the last domain is not full, its members send most.
    const int64_t reach = std::min(inside * level.ranks, group.ranks);
    const bool is_network = level.tier != &network.system->tiers.front();
    const bool is_last = i + 1 == levels.count;
    const int64_t rest = group.ranks % inside;
    const double own = real(rest > 0 ? rest : inside);
    double leaves = bytes * (is_network || is_last ? n - own : real(reach - inside)) / n;
    if (copies > 1) {
      if (i > 0) {
        const double share = real(inside) / n;  // of a far domain
        leaves *= (1 - std::pow(1 - share, copies)) / (share * copies);
      } else {
        leaves = bytes * (n - 1) / n;  // including copies of tokens that came from far
      }
    }
    slowest = std::max(slowest, leaves / level.bandwidth);
    latency = std::max(latency, level.latency);
    inside = reach;
  }
  return latency + slowest;
}

double send_seconds(const Network& network, int64_t span, double bytes) {
  const auto& tiers = network.system->tiers;
  for (size_t i = 0; i < tiers.size(); ++i) {
    if (tiers[i].chips == 0 || span < tiers[i].chips || i + 1 == tiers.size()) {
      return tiers[i].latency_seconds + bytes / tier_bandwidth(network, i);
    }
  }
  return 0;
}

}  // namespace tutti::plan
