#include "tutti/plan/offload_cost.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/spec/memory/offload_plan.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::plan {
namespace {

constexpr const char* kHostLink = "host_link_gigabytes_per_second";
// Share of a link's bandwidth that large copies reach, after packet headers: assumed.
constexpr double kLinkRatio = 0.85;

double link_bytes_per_second(const catalog::Chip& chip) {
  const double rate = chip.entry.number_or(kHostLink, 0) * 1e9 * kLinkRatio;
  if (rate > 0) return rate;
  fail(
      ErrorKind::unsupported,
      "offload: the catalog does not say how fast {} reaches its host; add {} to its entry of kind "
      "chip, or remove offload",
      chip.name, kHostLink);
}

// Of a micro-batch's layers on the rank, those that are copied out and those that are copied in.
struct Shares {
  double leaving = 0;
  double arriving = 0;
};
Shares shares(const spec::Recipe& recipe, int64_t stage, double micro_batches) {
  const spec::Mesh& mesh = recipe.parallel;
  int64_t layers = 0;
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    layers += spec::stage_layers(mesh, recipe.model.layers, chunk * mesh.pp + stage).count;
  }
  Shares out;
  for (const bool routed : {false, true}) {
    for (const bool recomputes : {false, true}) {
      const spec::OffloadPlan plan = spec::offload_plan(recipe, stage, routed, recomputes);
      out.leaving += static_cast<double>(plan.leaving);
      out.arriving += static_cast<double>(plan.arriving);
    }
  }
  const double passes = micro_batches * static_cast<double>(layers);
  return {out.leaving / passes, std::min(1.0, out.arriving / passes)};
}

}  // namespace

OffloadSeconds price_offload(const spec::Recipe& recipe, int64_t stage, const spec::MemoryMap& map,
                             const catalog::Chip& chip, const OffloadWork& work) {
  OffloadSeconds out;
  if (!recipe.offload.enabled()) return out;
  const double rate = link_bytes_per_second(chip);
  const spec::OffloadTraffic traffic = spec::offload_traffic(recipe, map, stage);
  const double state = static_cast<double>(std::max(traffic.state_in, traffic.state_out)) / rate;
  if (state > 0) out.state = std::max(0.0, state - work.update / 2);
  const auto micro_batches = static_cast<double>(spec::make_schedule(recipe).micro_batches);
  const auto exposed = [&](int64_t bytes, double share, double window) {
    return std::max(0.0, static_cast<double>(bytes) / rate / micro_batches - share * window);
  };
  const Shares share = shares(recipe, stage, micro_batches);
  out.activations = exposed(traffic.activations_out, share.leaving, work.forward) +
                    exposed(traffic.activations_in, share.arriving, work.backward);
  return out;
}

}  // namespace tutti::plan
