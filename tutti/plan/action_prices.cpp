#include "tutti/plan/action_prices.h"

#include "tutti/plan/cost.h"
#include "tutti/plan/predict.h"
#include "tutti/spec/schedule/action_operations.h"
#include "tutti/spec/schedule/step_list.h"

namespace tutti::plan {

std::vector<PricedAction> price_actions(const spec::Recipe& recipe, const spec::Coordinates& at,
                                        const catalog::System& system, const Constants& constants) {
  const spec::Profile profile = profile_on(spec::tutti_profile(), recipe, system.chip);
  const spec::Program program = spec::make_program(recipe, profile);
  const spec::ParamLayout layout =
      spec::param_layout(spec::param_table(recipe.model, recipe.lora,
                                           profile.vocabulary_multiple * recipe.parallel.tp),
                         recipe.parallel, at);
  const spec::ActionOperations operations(recipe, profile, program, layout, at);
  std::vector<PricedAction> out;
  for (const spec::Action& action : spec::step_list(recipe, profile, layout, at)) {
    PricedAction& priced = out.emplace_back();
    priced.action = action;
    priced.priced = action.kind != spec::ActionKind::load &&
                    action.kind != spec::ActionKind::fetch &&
                    action.kind != spec::ActionKind::offload;
    operations.visit(action, [&](const spec::Op& op, bool first) {
      spec::Op done = op;
      if (first) done.bytes = op.first_bytes;
      if (done.collective) {
        priced.network_seconds += price_collectives({done}, recipe, system, constants);
      } else {
        priced.compute_seconds += operation_seconds(done, system, constants, recipe.precision);
      }
    });
  }
  return out;
}

Json to_json(const std::vector<PricedAction>& actions, const spec::Mesh& mesh) {
  Json out = Json::array();
  for (const PricedAction& one : actions) {
    const auto seconds = [&one](double value) { return one.priced ? Json(value) : Json(nullptr); };
    out.push_back({{"action", spec::action_name(one.action.kind)},
                   {"micro", one.action.micro},
                   {"chunk", one.action.chunk},
                   {"part", spec::part_text(one.action, mesh)},
                   {"compute_seconds", seconds(one.compute_seconds)},
                   {"network_seconds", seconds(one.network_seconds)}});
  }
  return out;
}

}  // namespace tutti::plan
