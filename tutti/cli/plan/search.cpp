// `tutti plan search`: the best layouts of a recipe on systems and numbers of GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/plan/options.h"
#include "tutti/cli/program/common.h"
#include "tutti/plan/pressure.h"
#include "tutti/plan/sensitivity.h"

namespace tutti::cli {
namespace {

struct PlanSearchArguments {
  SearchArguments common;
  std::string target;
  std::string budget;
  std::string out;
  int64_t top = 5;
  bool exhaustive = false;
};

plan::Constraints constraints_of(const PlanSearchArguments& arguments, const SearchInputs& inputs) {
  plan::Constraints out;
  if (!arguments.target.empty()) {
    out.target_seconds = parse_seconds(arguments.target, "--target");
    const char last = arguments.target.back();
    if (last >= '0' && last <= '9') {
      fail(ErrorKind::usage, "--target: '{}' has no unit; write {}s, {}min, {}h or {}d",
           arguments.target, arguments.target, arguments.target, arguments.target,
           arguments.target);
    }
    if (!(out.target_seconds > 0)) {
      fail(ErrorKind::usage,
           "--target: '{}' is not accepted; write a time above zero, such as "
           "10min",
           arguments.target);
    }
  }
  if (!arguments.budget.empty()) {
    out.budget_usd = static_cast<double>(parse_count(arguments.budget, "--budget"));
    if (!(out.budget_usd > 0)) {
      fail(ErrorKind::usage,
           "--budget: '{}' is not accepted; write US dollars above zero, such as "
           "50000 or 50k",
           arguments.budget);
    }
    for (const catalog::System* system : inputs.systems) {
      if (inputs.catalog.price_of(system->name) != nullptr) continue;
      fail(ErrorKind::usage,
           "--budget: the catalog has no public price of {}; add one (--catalog FOLDER, "
           "prices/*.yaml) or leave the budget out",
           system->name);
    }
  }
  out.rack_watts = inputs.terms.site.rack_watts;
  return out;
}

// What was found, of all systems and numbers of GPUs.
struct Outcome {
  std::vector<plan::Choice> choices;
  plan::Recommended recommended;
  std::string runner_up;  // what makes the next layout on the same GPUs slower
  std::vector<size_t> front;
  std::vector<plan::Excess> excesses;  // of the recommended one
  std::vector<plan::Pressure> pressures;

  const plan::Choice& best() const { return choices[recommended.index]; }
};

// What limits the step, by what saves most of it.
void name_limit(const SearchInputs& inputs, const catalog::System& system,
                const plan::Constants& constants, plan::Found& found) {
  spec::Recipe recipe = inputs.recipe;
  plan::apply(found.layout, recipe);
  plan::PipelineSimulator simulator;
  found.step.bottleneck =
      plan::savings(recipe, plan::profile_on(*inputs.profile, recipe, system.chip), system,
                    constants, found.step, simulator)
          .front()
          .resource;
}

Outcome search_all(const PlanSearchArguments& arguments, const SearchInputs& inputs,
                   const plan::Constraints& constraints, Searcher& searcher) {
  Outcome out;
  for (const catalog::System* system : inputs.systems) {
    const plan::Constants constants = inputs.constants(*system, arguments.common.software);
    const catalog::Price* price = inputs.catalog.price_of(system->name);
    for (const int64_t gpus : gpu_counts(arguments.common, *system)) {
      plan::SearchResult result = searcher.search(inputs, *system, constants, inputs.recipe, gpus);
      for (std::vector<plan::Found>* list : {&result.best, &result.smallest}) {
        for (plan::Found& found : *list) {
          name_limit(inputs, *system, constants, found);
          out.choices.push_back(
              plan::make_choice(*system, price, gpus, std::move(found), inputs.terms_on(*system)));
        }
      }
      if (searcher.signal() != 0) break;
    }
    if (searcher.signal() != 0) break;
  }
  searcher.finish();
  if (out.choices.empty()) return out;
  out.recommended = plan::recommend(out.choices, constraints);
  const plan::Choice& best = out.best();
  for (size_t i = 0; i < out.choices.size(); ++i) {
    const plan::Choice& other = out.choices[i];
    if (i == out.recommended.index || other.system != best.system || other.gpus != best.gpus ||
        other.found.step.step_seconds < best.found.step.step_seconds) {
      continue;
    }
    const double slower = other.found.step.step_seconds / best.found.step.step_seconds - 1;
    const std::string why = plan::split_difference(best.found.step, other.found.step);
    out.runner_up = fmt::format("{}: {:.1f}% slower{}", plan::layout_text(other.found.layout),
                                100 * slower, why.empty() ? "" : ": " + why);
    break;
  }
  out.front = plan::pareto_front(out.choices);
  out.excesses = plan::excesses(best, constraints);
  out.pressures = plan::pressures(best, inputs.terms);
  return out;
}

Json outcome_json(const Outcome& outcome, const SearchInputs& inputs,
                  const plan::SearchCounts& counts) {
  Json layouts = Json::array();
  for (const plan::Choice& choice : outcome.choices) {
    layouts.push_back(choice_json(choice, inputs.recipe));
  }
  Json front = Json::array();
  for (const size_t i : outcome.front) {
    front.push_back(choice_json(outcome.choices[i], inputs.recipe));
  }
  Json missed = Json::array();
  for (const plan::Excess& excess : outcome.excesses) {
    missed.push_back({{"constraint", excess.key}, {"ratio", excess.ratio}, {"text", excess.text}});
  }
  Json limits = Json::array();
  for (const plan::Pressure& pressure : outcome.pressures) {
    limits.push_back({{"limit", pressure.key}, {"used", pressure.used}, {"text", pressure.text}});
  }
  return {{"best", choice_json(outcome.best(), inputs.recipe)},
          {"satisfied", outcome.recommended.satisfied},
          {"exceeded", missed},
          {"runner_up", outcome.runner_up},
          {"limits", limits},
          {"breaks_first", plan::pressure_sentence(outcome.pressures)},
          {"layouts", layouts},
          {"pareto", front},
          {"tokens", inputs.tokens},
          {"counts", counts_json(counts)}};
}

void print_outcome(const Outcome& outcome, const SearchInputs& inputs,
                   const plan::Constraints& constraints, const plan::SearchCounts& counts) {
  const plan::Choice& best = outcome.best();
  std::vector<std::vector<std::string>> cells = {choice_header()};
  for (const plan::Choice& choice : outcome.choices) cells.push_back(choice_cells(choice));
  print_text(format_table(cells));
  print_text(fmt::format("\n{}\n", counts_text(counts)));
  if (outcome.front.size() > 1) {
    std::vector<std::vector<std::string>> front = {choice_header()};
    for (const size_t i : outcome.front) front.push_back(choice_cells(outcome.choices[i]));
    print_text("\nNone of these is beaten in time, money and energy at once:\n" +
               format_table(front));
  }
  if (outcome.recommended.satisfied) {
    print_text(fmt::format("\nBest on {} x {} ({}{}):\n\n{}", best.gpus, best.system->chip.name,
                           best.system->name,
                           constraints.target_seconds > 0 ? ", the cheapest in time" : "",
                           plan::layout_yaml(best.found.layout, inputs.recipe.batch)));
    if (!outcome.runner_up.empty()) print_text("\nNext: " + outcome.runner_up + "\n");
  } else {
    print_text(fmt::format("\nNothing satisfies this. Nearest, on {} x {} ({}): {}\n", best.gpus,
                           best.system->chip.name, best.system->name,
                           plan::layout_text(best.found.layout)));
    for (const plan::Excess& excess : outcome.excesses) print_text("  " + excess.text + "\n");
  }
  print_text("\n" + plan::pressure_sentence(outcome.pressures) + "\n");
  if (inputs.terms.site.rack_watts > 0 && !best.rack_watts) {
    print_message(
        fmt::format("The catalog does not say how many nodes of {} a rack has: the power "
                    "cap of {} was not checked.\n",
                    best.system->name, inputs.terms.site.name));
  }
}

int run_search(const PlanSearchArguments& arguments) {
  watch_signals();
  SearchInputs inputs = load_search_inputs(arguments.common);
  const plan::Constraints constraints = constraints_of(arguments, inputs);
  for (const catalog::System* system : inputs.systems) warn_no_price(inputs.catalog, *system);
  inputs.options.keep = static_cast<size_t>(arguments.top);
  inputs.options.exhaustive = arguments.exhaustive;
  // Before the first search, which may take long.
  for (const catalog::System* system : inputs.systems) gpu_counts(arguments.common, *system);
  Searcher searcher;
  const Outcome outcome = search_all(arguments, inputs, constraints, searcher);
  if (outcome.choices.empty()) {
    throw_if_interrupted();
    const std::vector<int64_t> counts = gpu_counts(arguments.common, *inputs.systems.front());
    fail_no_layout(inputs.recipe, counts.front());
  }
  if (!arguments.out.empty()) {
    spec::Recipe recipe = inputs.recipe;
    plan::apply(outcome.best().found.layout, recipe);
    write_file_atomic(posix_file_system(), arguments.out, spec::to_yaml(recipe));
  }
  if (arguments.common.json) {
    print_json(outcome_json(outcome, inputs, searcher.totals()));
  } else {
    print_outcome(outcome, inputs, constraints, searcher.totals());
  }
  if (searcher.signal() != 0) {
    flush_output();
    print_message("stopped: the best so far is above\n");
    return 128 + searcher.signal();
  }
  return outcome.best().fits ? int{exit_ok} : exit_does_not_fit;
}

}  // namespace

void add_plan_search(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<PlanSearchArguments>();
  CLI::App* command = group.add_subcommand(
      "search", "The best layouts of a recipe: parallelism, ZeRO, micro-batch, precision, ...");
  add_search_options(*command, arguments->common);
  command->add_option("--target", arguments->target,
                      "The run may take so long at most, such as 10min or 30d: the cheapest wins");
  command->add_option("--budget", arguments->budget, "US dollars that the run may cost");
  command->add_option("--top", arguments->top, "Layouts per system and number of GPUs")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--out", arguments->out, "Write the whole recipe with the best layout")
      ->type_name("FILE");
  command->add_flag("--exhaustive", arguments->exhaustive,
                    "Judge every layout by its own bound (same result, slower)");
  command->footer(
      "Example:\n  tutti plan search gpt2-124m batch.global=512 --system dgx-h100 --gpus 8,16,32");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_search(*arguments); }; });
}

}  // namespace tutti::cli
