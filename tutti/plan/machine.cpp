#include "tutti/plan/machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/json.h"

namespace tutti::plan {
namespace {

std::string system_name(const std::string& name, int64_t ranks) {
  return ranks == 1 ? name : fmt::format("{}-{}", name, ranks);
}

}  // namespace

MachineCeilings share_of(const MachineCeilings& ceilings, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  return {ceilings.bf16_flops / n, ceilings.f32_flops / n, ceilings.bytes_per_second / n,
          ceilings.memory_bytes / n, ceilings.link_bytes_per_second};
}

double shared_memory_link(double copied_bytes_per_second, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  return ranks == 1 ? copied_bytes_per_second : copied_bytes_per_second * 2 * (n - 1) / (3 * n - 1);
}

catalog::System machine_system(const std::string& name, const MachineCeilings& ceilings,
                               int64_t ranks) {
  const MachineCeilings share = share_of(ceilings, ranks);
  catalog::System system;
  system.name = system_name(name, ranks);
  system.provider = "measured";
  system.fabric = system.name;
  system.chips_per_node = ranks;
  system.largest_chips = ranks;
  catalog::FabricTier tier;
  tier.name = "memory";
  tier.bytes_per_second = share.link_bytes_per_second > 0
                              ? share.link_bytes_per_second
                              : shared_memory_link(share.bytes_per_second, ranks);
  tier.latency_seconds = 1e-6;
  system.tiers = {tier};
  system.chip.name = system.name;
  system.chip.vendor = "measured";
  system.chip.generation = name;
  system.chip.bf16_flops = share.bf16_flops;
  system.chip.f32_flops = share.f32_flops;
  system.chip.memory_bytes = share.memory_bytes;
  system.chip.memory_bytes_per_second = share.bytes_per_second;
  system.chip.link_bytes_per_second = tier.bytes_per_second;
  return system;
}

std::vector<std::pair<std::string, std::string>> machine_files(
    const std::string& name, const MachineCeilings& ceilings, int64_t threads,
    const Constants& constants, const std::string& source, const std::string& date,
    const std::vector<MeasuredRanks>& measured) {
  const std::string from =
      fmt::format("source: {{text: {}, date: {}}}\n", dump_json(Json(source)), date);
  std::vector<std::pair<std::string, std::string>> files;
  for (int64_t ranks = 1; ranks <= threads; ++ranks) {
    if (threads % ranks != 0) continue;
    const auto own = std::find_if(measured.begin(), measured.end(),
                                  [&](const MeasuredRanks& each) { return each.ranks == ranks; });
    catalog::System system =
        machine_system(name, own == measured.end() ? ceilings : own->ceilings, ranks);
    catalog::Chip& chip = system.chip;
    if (own != measured.end()) chip.generation = own->constants.chip_generation;
    files.emplace_back(
        "chips/" + system.name + ".yaml",
        fmt::format("kind: chip\nname: {}\n{}texts:\n  vendor: measured\n  generation: {}\n"
                    "quantities:\n  dense_bf16_tflops: {:.6g}\n  dense_f32_tflops: {:.6g}\n"
                    "  memory_gigabytes: {:.6g}\n  memory_terabytes_per_second: {:.6g}\n"
                    "  link_gigabytes_per_second: {:.6g}\n",
                    chip.name, from, chip.generation, chip.bf16_flops / 1e12, chip.f32_flops / 1e12,
                    chip.memory_bytes / 1e9, chip.memory_bytes_per_second / 1e12,
                    chip.link_bytes_per_second / 1e9));
    files.emplace_back(
        "fabrics/" + system.name + ".yaml",
        fmt::format("kind: fabric\nname: {}\n{}tiers:\n  - name: memory\n"
                    "    gigabytes_per_second: {:.6g}\n    latency_microseconds: 1\n",
                    system.name, from, chip.link_bytes_per_second / 1e9));
    files.emplace_back(
        "systems/" + system.name + ".yaml",
        fmt::format("kind: system\nname: {0}\n{1}texts:\n  chip: {0}\n  fabric: {0}\n"
                    "  provider: measured\nquantities:\n  chips_per_node_count: {2}\n"
                    "  largest_chips_count: {2}\n",
                    system.name, from, ranks));
  }
  files.emplace_back("constants/" + name + ".yaml", to_yaml(constants, source, date));
  for (const MeasuredRanks& each : measured) {
    files.emplace_back("constants/" + system_name(name, each.ranks) + ".yaml",
                       to_yaml(each.constants, source, date));
  }
  return files;
}

}  // namespace tutti::plan
