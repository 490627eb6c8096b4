#include "tutti/plan/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/check.h"

namespace tutti::plan {
namespace {

using catalog::System;

void double_products(System& system) {
  catalog::Chip& chip = system.chip;
  for (double* rate : {&chip.f32_flops, &chip.bf16_flops, &chip.fp8_flops, &chip.fp4_flops}) {
    *rate *= 2;
  }
}

void double_memory(System& system) { system.chip.memory_bytes_per_second *= 2; }

void double_tier(catalog::FabricTier& tier) {
  tier.bytes_per_second *= 2;
  tier.latency_seconds /= 2;
}

void double_link(System& system) { double_tier(system.tiers.front()); }

void double_network(System& system) {
  for (size_t i = 1; i < system.tiers.size(); ++i) double_tier(system.tiers[i]);
}

void double_host_link(System& system) {
  const auto found = system.chip.entry.quantities.find("host_link_gigabytes_per_second");
  if (found != system.chip.entry.quantities.end()) found->second.value *= 2;
}

}  // namespace

std::vector<Saving> savings(const spec::Recipe& recipe, const spec::Profile& profile,
                            const System& system, const Constants& constants,
                            const StepPrediction& step, PipelineSimulator& simulator) {
  const spec::Program program = spec::make_program(recipe, profile);
  std::vector<Saving> out;
  const auto ask = [&](const char* resource, void (*twice)(System&), const Constants& with) {
    System faster = system;
    twice(faster);
    Predictor predictor(faster, with, simulator);
    const double seconds = predictor.step(recipe, program).step_seconds;
    out.push_back({resource, std::max(0.0, 1 - seconds / step.step_seconds)});
  };
  const int64_t chips = recipe.parallel.world();
  ask("matrix products", double_products, constants);
  ask("memory bandwidth", double_memory, constants);
  if (chips > 1) ask("link", double_link, constants);
  if (system.tiers.front().chips > 0 && chips > system.tiers.front().chips) {
    ask("network", double_network, constants);
  }
  if (recipe.offload.enabled()) ask("link to the host", double_host_link, constants);
  Constants faster = constants;
  for (const Constant each : {Constant::launch_microseconds, Constant::host_microseconds,
                              Constant::step_overhead_seconds}) {
    faster[each] /= 2;
  }
  ask(
      "host", [](System&) {}, faster);
  std::stable_sort(out.begin(), out.end(),
                   [](const Saving& a, const Saving& b) { return a.share > b.share; });
  return out;
}

std::string limit_text(const std::vector<Saving>& list) {
  TUTTI_CHECK(!list.empty(), "no resources");
  return fmt::format("{}: twice as fast, {:.0f}% less time", list.front().resource,
                     100 * list.front().share);
}

Json to_json(const std::vector<Saving>& list) {
  Json out = Json::array();
  for (const Saving& each : list) {
    out.push_back({{"resource", each.resource}, {"saving", each.share}});
  }
  return out;
}

}  // namespace tutti::plan
