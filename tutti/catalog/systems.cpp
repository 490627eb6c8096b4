#include "tutti/catalog/systems.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/known_quantities.h"

namespace tutti::catalog {
namespace {

double number_or(const Tier& tier, const std::string& key, double fallback) {
  const auto found = tier.quantities.find(key);
  return found == tier.quantities.end() ? fallback : found->second.value;
}

int64_t whole(double value, const std::string& where) {
  if (value != std::floor(value) || value > 1e15) {
    fail(ErrorKind::usage, "{}: {} is not a whole number", where, value);
  }
  return static_cast<int64_t>(value);
}

// A key that no tier has is a typing error, not something to be ignored.
void check_keys(const Tier& tier, const std::string& where) {
  static const std::vector<std::string> known = {"name",
                                                 "chips_count",
                                                 "gigabytes_per_second",
                                                 "latency_microseconds",
                                                 "oversubscription_ratio",
                                                 "reduction"};
  const auto check = [&](const std::string& key) {
    if (std::find(known.begin(), known.end(), key) != known.end()) return;
    fail(ErrorKind::usage, "{}.{}: a tier has no such key; known: {}", where, key,
         join(known, ", "));
  };
  for (const auto& [key, quantity] : tier.quantities) check(key);
  for (const auto& [key, text] : tier.texts) check(key);
}

// As many as the planner's collectives distinguish (plan/collectives.cpp).
constexpr size_t kMostTiers = 4;

}  // namespace

std::vector<FabricTier> tiers_from(const Entry& fabric) {
  std::vector<FabricTier> tiers;
  for (const Tier& tier : fabric.tiers) {
    const std::string where = fabric.origin + ": tiers." + tier.name;
    check_keys(tier, where);
    FabricTier out;
    out.name = tier.name;
    out.chips = whole(number_or(tier, "chips_count", 0), where + ".chips_count");
    out.bytes_per_second = number_or(tier, "gigabytes_per_second", 0) * 1e9;
    out.latency_seconds = number_or(tier, "latency_microseconds", 0) * 1e-6;
    out.oversubscription = number_or(tier, "oversubscription_ratio", 1);
    if (const auto text = tier.texts.find("reduction"); text != tier.texts.end()) {
      out.reduction = text->second;
    }
    if (out.bytes_per_second <= 0) {
      fail(ErrorKind::usage, "{}: needs gigabytes_per_second above zero", where);
    }
    if (out.oversubscription < 1) {
      fail(ErrorKind::usage, "{}.oversubscription_ratio: {} is below 1", where,
           out.oversubscription);
    }
    if (!out.reduction.empty() && out.reduction != "nvls" && out.reduction != "sharp") {
      fail(ErrorKind::usage, "{}.reduction: '{}' is unknown; accepted: nvls, sharp", where,
           out.reduction);
    }
    if (!tiers.empty() && tiers.back().chips == 0) {
      fail(ErrorKind::usage,
           "{}: never reached: the nearer tier {} has no chips_count, so it joins all", where,
           tiers.back().name);
    }
    if (!tiers.empty() && out.chips != 0 && out.chips <= tiers.back().chips) {
      fail(ErrorKind::usage, "{}.chips_count: {} is not above the nearer tier's {}", where,
           out.chips, tiers.back().chips);
    }
    tiers.push_back(std::move(out));
  }
  if (tiers.empty()) fail(ErrorKind::usage, "{}: tiers: is missing or empty", fabric.origin);
  if (tiers.size() > kMostTiers) {
    fail(ErrorKind::usage, "{}: tiers: {} are there; at most {} are priced: join some of them",
         fabric.origin, tiers.size(), kMostTiers);
  }
  return tiers;
}

System system_from(const Entry& entry, const Chip& chip, const Entry& fabric) {
  check_quantities(
      entry, {"chips_per_node_count", "nodes_per_rack_count", "largest_chips_count",
              "node_overhead_watts", "node_rated_kilowatts", "host_memory_gigabytes",
              "storage_gigabytes_per_second", "local_storage_terabytes", "rack_memory_terabytes",
              "rack_sparse_fp4_tflops", "rack_link_terabytes_per_second"});
  System system;
  system.name = entry.name;
  system.provider = entry.text_or("provider", "");
  system.chip = chip;
  system.fabric = fabric.name;
  system.tiers = tiers_from(fabric);
  const auto count = [&](const char* key) {
    return whole(entry.number_or(key, 0), entry.origin + ": quantities." + key);
  };
  entry.number("chips_per_node_count");  // has to be there
  system.chips_per_node = count("chips_per_node_count");
  system.nodes_per_rack = count("nodes_per_rack_count");
  system.largest_chips = count("largest_chips_count");
  system.node_idle_watts = entry.number_or("node_overhead_watts", 0);
  system.node_rated_watts = entry.number_or("node_rated_kilowatts", 0) * 1e3;
  system.host_memory_bytes = entry.number_or("host_memory_gigabytes", 0) * 1e9;
  system.storage_bytes_per_second = entry.number_or("storage_gigabytes_per_second", 0) * 1e9;
  system.local_storage_bytes = entry.number_or("local_storage_terabytes", 0) * 1e12;
  system.entry = entry;
  if (system.chips_per_node < 1) {
    fail(ErrorKind::usage, "{}: quantities.chips_per_node_count: must be 1 or more", entry.origin);
  }
  const int64_t joined = system.tiers.back().chips;
  if (joined > 0 && (system.largest_chips == 0 || system.largest_chips > joined)) {
    fail(ErrorKind::usage,
         "{}: the farthest tier of fabric {} joins {} chips; add a tier without chips_count to it, "
         "or quantities.largest_chips_count of {} or less here",
         entry.origin, system.fabric, joined, joined);
  }
  return system;
}

}  // namespace tutti::catalog
