// `tutti plan`: the verbs of the planner, one file each. Each prices what a recipe describes.
#include "tutti/cli/plan/common.h"

namespace tutti::cli {

void add_plan(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("plan", "Predict time, memory and cost of a training run");
  group->require_subcommand(1);
  add_plan_predict(*group, action);
  add_plan_explain(*group, action);
  add_plan_calibrate(*group, action);
  add_plan_search(*group, action);
  add_plan_scaling(*group, action);
  add_plan_serve(*group, action);
  add_plan_systems(*group, action);
  add_plan_validate(*group, action);
}

}  // namespace tutti::cli
