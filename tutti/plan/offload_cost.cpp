#include "tutti/plan/offload_cost.h"

#include <algorithm>

#include "tutti/base/error.h"

namespace tutti::plan {
namespace {

constexpr const char* kHostLink = "host_link_gigabytes_per_second";
// Of a link's bandwidth, what large copies reach beside the headers of packets: assumed.
constexpr double kLinkRatio = 0.85;

double link_bytes_per_second(const catalog::Chip& chip) {
  const double rate = chip.entry.number_or(kHostLink, 0) * 1e9 * kLinkRatio;
  if (rate > 0) return rate;
  fail(
      ErrorKind::unsupported,
      "offload: the catalog does not say how fast {} reaches its host; add {} to its entry of kind "
      "chip, or drop offload",
      chip.name, kHostLink);
}

int64_t leaving_layers(const spec::MemoryMap& map) {
  int64_t layers = 0;
  if (!map.has("offloaded_activations")) return 0;
  for (const spec::SlotPlan& slot : map.arena("offloaded_activations").slots) {
    layers += slot.repeats;
  }
  return layers;
}

}  // namespace

OffloadSeconds price_offload(const spec::Recipe& recipe, const spec::MemoryMap& map,
                             const catalog::Chip& chip, const OffloadWork& work) {
  OffloadSeconds out;
  if (!recipe.offload.enabled()) return out;
  const double rate = link_bytes_per_second(chip);
  const spec::OffloadTraffic traffic = spec::offload_traffic(map);
  const double state = static_cast<double>(std::max(traffic.state_in, traffic.state_out)) / rate;
  if (state > 0) out.state = std::max(0.0, state - work.update / 2);
  const double activations = static_cast<double>(traffic.activations) / rate;
  const double share =
      static_cast<double>(leaving_layers(map)) / static_cast<double>(recipe.model.layers);
  for (const double window : {work.forward, work.backward}) {
    out.activations += std::max(0.0, activations - share * window);
  }
  return out;
}

}  // namespace tutti::plan
