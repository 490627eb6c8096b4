#include "tutti/catalog/systems.h"

#include "tutti/base/error.h"
#include "tutti/catalog/known_quantities.h"

namespace tutti::catalog {
namespace {

double number_or(const Tier& tier, const std::string& key, double fallback) {
  const auto found = tier.quantities.find(key);
  return found == tier.quantities.end() ? fallback : found->second.value;
}

}  // namespace

std::vector<FabricTier> tiers_from(const Entry& fabric) {
  std::vector<FabricTier> tiers;
  for (const Tier& tier : fabric.tiers) {
    FabricTier out;
    out.name = tier.name;
    out.chips = static_cast<int64_t>(number_or(tier, "chips_count", 0));
    out.bytes_per_second = number_or(tier, "gigabytes_per_second", 0) * 1e9;
    out.latency_seconds = number_or(tier, "latency_microseconds", 0) * 1e-6;
    out.oversubscription = number_or(tier, "oversubscription_ratio", 1);
    if (const auto text = tier.texts.find("reduction"); text != tier.texts.end()) {
      out.reduction = text->second;
    }
    const std::string where = fabric.origin + ": tiers." + tier.name;
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
    if (!tiers.empty() && out.chips != 0 && out.chips <= tiers.back().chips) {
      fail(ErrorKind::usage, "{}.chips_count: {} is not above the nearer tier's {}", where,
           out.chips, tiers.back().chips);
    }
    tiers.push_back(std::move(out));
  }
  if (tiers.empty()) fail(ErrorKind::usage, "{}: tiers: is missing or empty", fabric.origin);
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
  system.chips_per_node = static_cast<int64_t>(entry.number("chips_per_node_count"));
  system.nodes_per_rack = static_cast<int64_t>(entry.number_or("nodes_per_rack_count", 0));
  system.largest_chips = static_cast<int64_t>(entry.number_or("largest_chips_count", 0));
  system.node_idle_watts = entry.number_or("node_overhead_watts", 0);
  system.node_rated_watts = entry.number_or("node_rated_kilowatts", 0) * 1e3;
  system.host_memory_bytes = entry.number_or("host_memory_gigabytes", 0) * 1e9;
  system.storage_bytes_per_second = entry.number_or("storage_gigabytes_per_second", 0) * 1e9;
  system.local_storage_bytes = entry.number_or("local_storage_terabytes", 0) * 1e12;
  system.entry = entry;
  if (system.chips_per_node < 1) {
    fail(ErrorKind::usage, "{}: quantities.chips_per_node_count: must be 1 or more", entry.origin);
  }
  return system;
}

}  // namespace tutti::catalog
