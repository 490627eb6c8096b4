// `tutti plan explain`: where the time of one step goes, drawn, and what would change it.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/plan/action_prices.h"
#include "tutti/plan/timeline.h"
#include "tutti/plan/what_if.h"
#include "tutti/report/bars.h"
#include "tutti/report/html.h"
#include "tutti/report/page.h"
#include "tutti/telemetry/sinks/console.h"

namespace tutti::cli {
namespace {

constexpr size_t kTextRanks = 32;
constexpr size_t kPageRanks = 64;
constexpr int kColumns = 100;  // where output is not a terminal
constexpr int kLeastColumns = 80;

struct ExplainArguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string system;
  std::string catalog;
  std::string profile = "megatron-te";
  std::string software;
  std::string html;
  std::vector<std::string> what_if;
  int64_t gpus = 0;
  bool json = false;
};

std::string explain_page(const std::string& title, const std::string& lead,
                         const plan::StepTimeline& timeline,
                         const std::vector<plan::Outcome>& outcomes) {
  const plan::Outcome& now = outcomes.front();
  report::Page page;
  page.kind = "Predicted step";
  page.title = title;
  page.lead = lead;
  page.status = now.memory.fits ? "estimated" : "does not fit";
  page.tone = now.memory.fits ? report::Page::Tone::neutral : report::Page::Tone::bad;
  page.tiles = {
      {"step", format_seconds(now.step.step_seconds),
       "limited by " + std::string(now.step.bottleneck)},
      {"MFU", fmt::format("{:.1f}%", 100 * now.step.mfu_causal), "causal half of attention"},
      {"memory", format_bytes(now.memory.bytes), now.memory.fits ? "fits" : "does not fit"},
      {"run", format_seconds(now.run_seconds), "failures included"}};
  page.sections.push_back(
      {"timeline", "Where the time goes", report::draw(plan::draw_page(timeline, kPageRanks))});
  report::Bars bars;
  bars.id = "parts";
  bars.title = "Parts of the step";
  bars.subtitle = "of the pipeline stage with most work; communication is what nothing hides";
  bars.name_title = "Part";
  bars.value_title = "Time";
  bars.quantity = report::Quantity::seconds;
  const Json parts = split_json(now.step.split);
  for (const auto& [name, seconds] : parts.items()) {
    if (seconds.get<double>() > 0) bars.bars.push_back({name, seconds.get<double>(), 0});
  }
  page.sections.push_back({"parts", "Parts", report::draw(bars)});
  report::Table table;
  table.caption = "The same run under other conditions";
  for (const std::string& name : plan::outcome_titles()) {
    const bool text = name == "what if" || name == "limited by" || name == "fits";
    table.columns.push_back({name, !text, true});
  }
  std::string reasons;
  for (const plan::Outcome& outcome : outcomes) {
    table.rows.push_back(plan::outcome_cells(outcome, now));
    if (!outcome.impossible.empty()) {
      page.notes.push_back(outcome.name + ": " + outcome.impossible);
    }
  }
  page.sections.push_back({"what-if", "What if", report::html_table(table)});
  page.footer = "Every figure is estimated by tutti plan; constants: " + now.constants;
  return report::render(page);
}

// Of every pipeline stage, as this program executes them; null for another software's profile, and
// where they are too many to read.
Json listed_actions(const spec::Recipe& recipe, const plan::Situation& situation,
                    const plan::Constants& constants) {
  constexpr int64_t kMostPasses = 100'000;
  const spec::Mesh& mesh = recipe.parallel;
  const int64_t passes =
      3 * spec::make_schedule(recipe).micro_batches * (recipe.model.layers + 2 * mesh.pp);
  if (!situation.profile->executable || passes > kMostPasses) return nullptr;
  Json stages = Json::array();
  for (int64_t stage = 0; stage < mesh.pp; ++stage) {
    stages.push_back(plan::to_json(
        plan::price_actions(recipe, {.pp = stage}, *situation.system, constants), mesh));
  }
  return stages;
}

int run_explain(const ExplainArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::vector<std::string> folders = catalog_folders(arguments.catalog);
  const catalog::Catalog catalog = catalog::load_catalog(files, folders);
  const std::vector<plan::Constants> sets = plan::load_constants(files, folders);
  check_software(sets, arguments.software);
  plan::Situation situation;
  situation.recipe = [&](const std::vector<std::string>& more) {
    std::vector<std::string> overrides = arguments.overrides;
    overrides.insert(overrides.end(), more.begin(), more.end());
    return planned_recipe(arguments.recipe, overrides, arguments.gpus);
  };
  situation.profile = &spec::find_profile(arguments.profile);
  situation.system = &catalog.system(arguments.system);
  situation.catalog = &catalog;
  situation.sets = &sets;
  situation.software = arguments.software;

  const spec::Recipe recipe = situation.recipe({});
  std::vector<plan::WhatIf> questions(1);
  questions[0].name = "as it is";
  for (const std::string& text : arguments.what_if) questions.push_back(plan::parse_what_if(text));
  for (plan::WhatIf& question : plan::usual_questions(situation)) {
    questions.push_back(std::move(question));
  }
  std::vector<plan::Outcome> outcomes;
  for (const plan::WhatIf& question : questions) {
    outcomes.push_back(plan::ask(situation, question));
    if (outcomes.size() == 1 && !outcomes[0].impossible.empty()) {
      fail(ErrorKind::unsupported, "{}", outcomes[0].impossible);
    }
  }
  const int code = outcomes[0].memory.fits ? int{exit_ok} : exit_does_not_fit;
  const plan::Constants constants =
      plan::constants_for(sets, situation.system->chip, arguments.software);
  plan::PipelineSimulator simulator;
  const plan::StepTimeline timeline = plan::step_timeline(
      recipe, plan::profile_on(*situation.profile, recipe, situation.system->chip),
      *situation.system, constants, outcomes[0].step, simulator);

  const spec::Mesh& mesh = recipe.parallel;
  const std::string title =
      fmt::format("{} on {} x {}", arguments.recipe, mesh.world(), situation.system->chip.name);
  const std::string lead = fmt::format(
      "{}: tp {}, cp {}, pp {}{}, dp {}, {} micro-batches of {} x {} tokens per rank.",
      situation.system->name, mesh.tp, mesh.cp, mesh.pp,
      mesh.vpp > 1 ? fmt::format(" x {} chunks", mesh.vpp) : "", mesh.dp,
      spec::make_schedule(recipe).micro_batches, recipe.batch.micro, recipe.batch.sequence);
  if (!arguments.html.empty()) {
    write_file_atomic(files, arguments.html, explain_page(title, lead, timeline, outcomes));
  }
  if (arguments.json) {
    print_json({{"step_seconds", outcomes[0].step.step_seconds},
                {"bottleneck", outcomes[0].step.bottleneck},
                {"split_seconds", split_json(outcomes[0].step.split)},
                {"timeline", plan::to_json(timeline)},
                {"actions", listed_actions(recipe, situation, constants)},
                {"what_if", plan::to_json(outcomes)},
                {"constants", constants.name},
                {"gpus", mesh.world()},
                {"system", situation.system->name},
                {"html", arguments.html.empty() ? Json(nullptr) : Json(arguments.html)}});
    return code;
  }
  const int columns = output_is_terminal()
                          ? std::max(kLeastColumns, telemetry::stderr_console().columns())
                          : kColumns;
  print_text(title + "\n" + lead + "\n\n" + plan::draw_text(timeline, columns, kTextRanks) + "\n" +
             plan::format_outcomes(outcomes));
  if (!arguments.html.empty()) print_text("\n" + arguments.html + "\n");
  return code;
}

}  // namespace

void add_plan_explain(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* command =
      group.add_subcommand("explain", "Draw one step of every pipeline stage; ask what if");
  command->add_option("RECIPE", arguments->recipe, "Recipe file or name")->required();
  command->add_option("OVERRIDES", arguments->overrides, "key=value, such as parallel.pp=8");
  command->add_option("--system", arguments->system, "A system of the catalog (plan systems)")
      ->required();
  command
      ->add_option("--gpus", arguments->gpus, "GPUs; sets parallel.dp unless the mesh has so many")
      ->check(at_least(1));
  command
      ->add_option("--what-if", arguments->what_if,
                   "A further question: system=NAME, chip=NAME, network=2, link=2, memory=2, "
                   "failures=none, or a key of the recipe; several with commas between")
      ->allow_extra_args(false)  // overrides may follow
      ->type_name("KEY=VALUE");
  command->add_option("--html", arguments->html, "Write the drawing as an HTML page")
      ->type_name("FILE");
  add_profile_option(*command, arguments->profile);
  command->add_option("--software", arguments->software, "Software whose fitted constants to use");
  add_catalog_option(*command, arguments->catalog);
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti plan explain gpt2-124m --system dgx-h100 --gpus 16 parallel.pp=4 "
      "batch.global=64\n      --what-if system=dgx-b200,precision=fp4 --html step.html");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_explain(*arguments); }; });
}

}  // namespace tutti::cli
