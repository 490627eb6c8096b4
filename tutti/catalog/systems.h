// Systems to buy or rent: nodes of chips, connected by a fabric of tiers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/catalog/chips.h"

namespace tutti::catalog {

// One level of a network, nearest first: chips of one domain reach each other over this tier.
struct FabricTier {
  std::string name;
  int64_t chips = 0;            // in one domain; 0: all that follow
  double bytes_per_second = 0;  // of one chip, one direction, before oversubscription
  double latency_seconds = 0;   // of one hop
  double oversubscription = 1;  // capacity below over capacity above, >= 1
  std::string reduction;        // "", "nvls" or "sharp": sums inside the network
};

struct System {
  std::string name;
  std::string provider;
  Chip chip;
  std::vector<FabricTier> tiers;
  std::string fabric;
  int64_t chips_per_node = 0;
  int64_t nodes_per_rack = 0;           // 0: not stated
  int64_t largest_chips = 0;            // 0: no limit stated
  double node_idle_watts = 0;           // everything but the accelerators, idle or not
  double node_rated_watts = 0;          // 0: not published
  double host_memory_bytes = 0;         // of a node
  double storage_bytes_per_second = 0;  // shared, all nodes together; 0: not stated
  double local_storage_bytes = 0;       // of a node
  Entry entry;
};

// From entries of kind fabric: tiers with chips_count (absent: all), gigabytes_per_second,
// latency_microseconds, oversubscription_ratio, and text reduction.
std::vector<FabricTier> tiers_from(const Entry& fabric);

// From an entry of kind system with texts chip, fabric, provider.
System system_from(const Entry& entry, const Chip& chip, const Entry& fabric);

}  // namespace tutti::catalog
