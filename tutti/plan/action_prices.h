// What each action of a step of the trainer costs by itself (spec/schedule/step_list.h): the
// seconds of its operations, alone on the chip or on its links. A prediction (predict.h) also knows
// what hides behind what.
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
  bool priced = true;  // false: copies between host and device, and what the host does
};

// Of the rank at `at`, in the order in which the trainer executes them. (Ranks of a stage own
// slices that lie apart on one and touch on another: they update as much, in other pieces.)
std::vector<PricedAction> price_actions(const spec::Recipe& recipe, const spec::Coordinates& at,
                                        const catalog::System& system, const Constants& constants);

// [{action, micro, chunk, part, compute_seconds, network_seconds}]; null for what has no price.
Json to_json(const std::vector<PricedAction>& actions, const spec::Mesh& mesh);

}  // namespace tutti::plan
