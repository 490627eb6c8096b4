// The cost of each action of a trainer's step (spec/schedule/step_list.h) in isolation: the seconds
// of its operations, alone on the chip or on its links. A prediction (predict.h) also includes
// overlap.
#pragma once

#include <optional>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/catalog/systems.h"
#include "tutti/plan/constants.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::plan {

struct PricedAction {
  spec::Action action;
  double compute_seconds = 0;
  double network_seconds = 0;
  bool priced = true;  // false: copies between host and device, and host work
};

// The actions of the rank at `at`, in the order in which the trainer executes them. (Slices that
// ranks of a stage own may be contiguous on one rank and not on another: they update equally many
// elements, in different pieces.)
std::vector<PricedAction> price_actions(const spec::Recipe& recipe, const spec::Coordinates& at,
                                        const catalog::System& system, const Constants& constants);

// [{action, micro, chunk, part, compute_seconds, network_seconds}]; null for actions without a
// price.
Json to_json(const std::vector<PricedAction>& actions, const spec::Mesh& mesh);

}  // namespace tutti::plan
