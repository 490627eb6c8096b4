// `tutti plan scaling`: time and efficiency against the number of GPUs.
#include "tutti/plan/scaling.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/plan/options.h"
#include "tutti/cli/program/common.h"
#include "tutti/report/html.h"
#include "tutti/report/line_chart.h"
#include "tutti/report/page.h"

namespace tutti::cli {
namespace {

struct PlanScalingArguments {
  SearchArguments common;
  std::string html;
  bool weak = false;
  bool keep_layout = false;
};

// The recipe on `gpus`: with weak scaling its batch grows as the GPUs do from `first`.
spec::Recipe scaled_recipe(const spec::Recipe& recipe, int64_t gpus, int64_t first, bool weak) {
  spec::Recipe out = recipe;
  if (!weak) return out;
  if (recipe.batch.global * gpus % first != 0) {
    fail(ErrorKind::usage,
         "--weak: batch.global {} x {} / {} GPUs is not a whole number; choose a "
         "batch or GPUs that divide",
         recipe.batch.global, gpus, first);
  }
  out.batch.global = recipe.batch.global * gpus / first;
  return out;
}

struct Scaling {
  std::vector<plan::ScalingRow> rows;
  std::vector<int64_t> missing;  // GPU counts on which nothing fits or divides
};

Scaling scale(const PlanScalingArguments& arguments, const SearchInputs& inputs,
              Searcher& searcher) {
  const catalog::System& system = *inputs.systems.front();
  const plan::Constants constants = inputs.constants(system, arguments.common.software);
  const catalog::Price* price = inputs.catalog.price_of(system.name);
  const std::vector<int64_t> counts = gpu_counts(arguments.common, system);
  Scaling out;
  std::vector<plan::Choice> choices;
  std::vector<int64_t> batches;
  for (const int64_t gpus : counts) {
    const spec::Recipe recipe = scaled_recipe(inputs.recipe, gpus, counts.front(), arguments.weak);
    plan::SearchResult result = searcher.search(inputs, system, constants, recipe, gpus);
    if (result.best.empty()) {
      out.missing.push_back(gpus);
    } else {
      // A larger batch reaches the same tokens in fewer steps.
      plan::RunTerms terms = inputs.terms_on(system);
      terms.steps *= static_cast<double>(inputs.recipe.batch.global) /
                     static_cast<double>(recipe.batch.global);
      choices.push_back(
          plan::make_choice(system, price, gpus, std::move(result.best.front()), terms));
      batches.push_back(recipe.batch.global);
    }
    if (searcher.signal() != 0) break;
  }
  searcher.finish();
  out.rows = plan::scaling_rows(std::move(choices), batches, inputs.recipe.batch.sequence);
  return out;
}

std::vector<std::vector<std::string>> scaling_cells(const Scaling& scaling) {
  std::vector<std::vector<std::string>> cells = {{"GPUs", "batch", "step", "tokens/s", "speed-up",
                                                  "efficiency", "MFU", "run",
                                                  "lost since the first", "layout"}};
  for (const plan::ScalingRow& row : scaling.rows) {
    const plan::StepPrediction& step = row.choice.found.step;
    const std::string lost = plan::lost_text(row);
    cells.push_back({fmt::format("{}", row.choice.gpus), fmt::format("{}", row.global_batch),
                     fmt::format("{:.4g} s", step.step_seconds),
                     format_count(row.tokens_per_second), fmt::format("{:.2f}", row.speedup),
                     fmt::format("{:.1f}%", 100 * row.efficiency),
                     fmt::format("{:.1f}%", 100 * step.mfu_causal),
                     format_seconds(row.choice.forecast.wall_seconds), lost.empty() ? "-" : lost,
                     plan::layout_text(row.choice.found.layout)});
  }
  return cells;
}

report::Page scaling_page(const Scaling& scaling, const PlanScalingArguments& arguments,
                          const SearchInputs& inputs) {
  const catalog::System& system = *inputs.systems.front();
  report::Curve speed, ideal, efficiency, mfu;
  speed.name = "predicted";
  ideal.name = "as the first row per GPU";
  efficiency.name = "efficiency";
  mfu.name = "MFU";
  for (report::Curve* curve : {&speed, &efficiency, &mfu}) {
    curve->style = report::Curve::Style::dots;
  }
  ideal.color = 1;
  mfu.color = 1;
  const plan::ScalingRow& base = scaling.rows.front();
  for (const plan::ScalingRow& row : scaling.rows) {
    const auto gpus = static_cast<double>(row.choice.gpus);
    for (report::Curve* curve : {&speed, &ideal, &efficiency, &mfu}) curve->x.push_back(gpus);
    speed.y.push_back(row.tokens_per_second);
    ideal.y.push_back(base.tokens_per_second * gpus / static_cast<double>(base.choice.gpus));
    efficiency.y.push_back(row.efficiency);
    mfu.y.push_back(row.choice.found.step.mfu_causal);
  }
  report::LineChart throughput;
  throughput.id = "chart-throughput";
  throughput.title = "Tokens per second";
  throughput.x_name = "GPUs";
  throughput.y_quantity = report::Quantity::rate;
  throughput.curves = {speed, ideal};
  throughput.from_zero = true;
  throughput.offers_log = true;
  report::LineChart shares;
  shares.id = "chart-efficiency";
  shares.title = "Efficiency and MFU";
  shares.subtitle = "Efficiency is against the first row; MFU counts the causal half of attention.";
  shares.x_name = "GPUs";
  shares.y_quantity = report::Quantity::ratio;
  shares.curves = {efficiency, mfu};
  shares.from_zero = true;

  report::Table table;
  table.caption = "The best layout on each number of GPUs";
  std::vector<std::vector<std::string>> cells = scaling_cells(scaling);
  for (size_t i = 0; i < cells[0].size(); ++i) {
    table.columns.push_back({cells[0][i], i < 8, i < 8});
  }
  table.rows.assign(cells.begin() + 1, cells.end());

  report::Page page;
  page.kind = arguments.weak ? "Weak scaling, predicted" : "Strong scaling, predicted";
  page.title = base_name(arguments.common.recipe);
  page.lead = fmt::format("{} on {} ({}), {} tokens; constants {}.", inputs.recipe.model.name,
                          system.name, system.chip.name, format_count(inputs.tokens),
                          inputs.constants(system, arguments.common.software).name);
  for (const int64_t gpus : scaling.missing) {
    page.notes.push_back(fmt::format("On {} GPUs no layout divides and fits.", gpus));
  }
  page.sections = {{"scaling", "Scaling", report::draw(throughput) + report::draw(shares)},
                   {"layouts", "Layouts", report::html_table(table)}};
  page.footer = "tutti plan scaling, " + format_utc(wall_seconds());
  return page;
}

Json scaling_json(const Scaling& scaling, const PlanScalingArguments& arguments,
                  const SearchInputs& inputs, const plan::SearchCounts& counts) {
  Json rows = Json::array();
  for (const plan::ScalingRow& row : scaling.rows) {
    Json json = choice_json(row.choice, inputs.recipe);
    json["global_batch"] = row.global_batch;
    json["tokens_per_second"] = row.tokens_per_second;
    json["speedup"] = row.speedup;
    json["efficiency"] = row.efficiency;
    Json lost = Json::object();
    for (const auto& [part, share] : row.lost) lost[part->key] = share;
    json["lost"] = std::move(lost);
    rows.push_back(std::move(json));
  }
  return {{"scaling", arguments.weak ? "weak" : "strong"},
          {"rows", rows},
          {"missing_gpus", scaling.missing},
          {"counts", counts_json(counts)}};
}

int run_scaling(const PlanScalingArguments& arguments) {
  watch_signals();
  SearchInputs inputs = load_search_inputs(arguments.common);
  if (inputs.systems.size() != 1) {
    fail(ErrorKind::usage, "--system: {} systems; scaling needs one", inputs.systems.size());
  }
  inputs.options.keep = 1;
  if (arguments.keep_layout) {
    plan::keep_axis(inputs.options.kept, "layout");
    if (inputs.options.precisions.empty()) inputs.options.precisions = {inputs.recipe.precision};
  }
  Searcher searcher;
  const Scaling scaling = scale(arguments, inputs, searcher);
  if (scaling.rows.empty()) {
    throw_if_interrupted();
    fail(ErrorKind::usage,
         "--gpus: no layout divides any of these numbers and fits into the "
         "{} of a {}; see tutti plan search",
         format_bytes(inputs.systems.front()->chip.memory_bytes),
         inputs.systems.front()->chip.name);
  }
  if (!arguments.html.empty()) {
    write_file_atomic(posix_file_system(), arguments.html,
                      report::render(scaling_page(scaling, arguments, inputs)));
  }
  if (arguments.common.json) {
    print_json(scaling_json(scaling, arguments, inputs, searcher.totals()));
  } else {
    print_text(format_table(scaling_cells(scaling)));
    for (const int64_t gpus : scaling.missing) {
      print_text(fmt::format("{} GPUs: no layout divides and fits\n", gpus));
    }
    print_text("\n" + counts_text(searcher.totals()) + "\n");
  }
  if (searcher.signal() != 0) {
    flush_output();
    print_message("stopped: the rows so far are above\n");
    return 128 + searcher.signal();
  }
  return exit_ok;
}

}  // namespace

void add_plan_scaling(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<PlanScalingArguments>();
  CLI::App* command = group.add_subcommand(
      "scaling", "Time and efficiency against the number of GPUs, and what is lost");
  add_search_options(*command, arguments->common);
  command->add_flag("--weak", arguments->weak,
                    "The batch grows with the GPUs from the first number on");
  command->add_flag("--keep-layout", arguments->keep_layout,
                    "The recipe's layout everywhere; only dp grows");
  command->add_option("--html", arguments->html, "Write charts and table as one page")
      ->type_name("FILE");
  command->footer(
      "Example:\n  tutti plan scaling gpt2-124m batch.global=512 --system dgx-h100 --gpus 8..256 "
      "--html scaling.html");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_scaling(*arguments); }; });
}

}  // namespace tutti::cli
