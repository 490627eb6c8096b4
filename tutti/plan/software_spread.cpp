#include "tutti/plan/software_spread.h"

#include <algorithm>
#include <cmath>

namespace tutti::plan {

std::vector<NodeExit> open_exits(const std::vector<Constants>& sets, const Constants& constants) {
  std::vector<NodeExit> out;
  if (constants.nearness != Nearness::generation) return out;
  for (const Constants& set : sets) {
    if (set.software == kAny || set.chip_generation != constants.chip_generation) continue;
    const NodeExit one = {set.software, set[Constant::rail_ratio], set[Constant::node_rail_ratio]};
    const bool known = std::any_of(out.begin(), out.end(), [&](const NodeExit& other) {
      return other.rail_ratio == one.rail_ratio && other.node_rail_ratio == one.node_rail_ratio;
    });
    if (!known) out.push_back(one);
  }
  return out;
}

SoftwareSpread software_spread(const spec::Recipe& recipe, const spec::Profile& profile,
                               const catalog::System& system, const Constants& constants,
                               const std::vector<NodeExit>& exits, PipelineSimulator& simulator) {
  SoftwareSpread out;
  const auto seconds = [&](const Constants& with) {
    return Predictor(system, with, simulator).step(recipe, profile).step_seconds;
  };
  if (exits.empty()) return out;
  const double own = seconds(constants);
  for (const NodeExit& exit : exits) {
    Constants other = constants;
    other[Constant::rail_ratio] = exit.rail_ratio;
    other[Constant::node_rail_ratio] = exit.node_rail_ratio;
    const double difference = std::log(seconds(other) / own);
    if (difference > out.longer) out.longest = exit.software;
    out.longer = std::max(out.longer, difference);
    out.shorter = std::max(out.shorter, -difference);
  }
  return out;
}

}  // namespace tutti::plan
