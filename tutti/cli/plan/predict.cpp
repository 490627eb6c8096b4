// `tutti plan predict`: what one recipe takes on one system; nothing is trained.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/catalog/catalog.h"
#include "tutti/catalog/storage.h"
#include "tutti/cli/plan/assumed_site.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/plan/options.h"
#include "tutti/cli/program/common.h"
#include "tutti/plan/run_forecast.h"

namespace tutti::cli {
namespace {

struct PredictArguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string system;
  std::string catalog;
  std::string profile = "megatron-te";
  std::string software;
  std::string site = kAssumedSite;
  std::string price;
  int64_t gpus = 0;
  std::string benchmark;
  std::string anchor;
  std::string storage;
  plan::RunQuestion question;
  bool json = false;
};

// Of all catalogs: a user's stand before ours, and are found first.
std::vector<catalog::Benchmark> load_benchmarks(FileSystem& files,
                                                const std::vector<std::string>& folders) {
  std::vector<catalog::Benchmark> benchmarks;
  for (const std::string& folder : folders) {
    if (!files.is_directory(join_path(folder, "benchmarks"))) continue;
    const auto found = catalog::load_benchmarks(files, folder);
    benchmarks.insert(benchmarks.begin(), found.begin(), found.end());
  }
  return benchmarks;
}

int run_predict(const PredictArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::vector<std::string> folders = catalog_folders(arguments.catalog);
  const catalog::Catalog catalog = catalog::load_catalog(files, folders);
  const catalog::System& system = catalog.system(arguments.system);
  const std::vector<plan::Constants> sets = plan::load_constants(files, folders);
  check_software(sets, arguments.software);
  const plan::Constants constants = plan::constants_for(sets, system.chip, arguments.software);
  const spec::Recipe recipe = planned_recipe(arguments.recipe, arguments.overrides, arguments.gpus);
  const int64_t gpus = recipe.parallel.world();
  if (system.largest_chips > 0 && gpus > system.largest_chips) {
    fail(ErrorKind::usage, "--gpus: {} are more than the {} that {} has", gpus,
         system.largest_chips, system.name);
  }
  plan::RunQuestion question = arguments.question;
  question.recipe = &recipe;
  question.profile = &spec::find_profile(arguments.profile);
  question.system = &system;
  question.site = &catalog.site(arguments.site);
  question.price = catalog.price_of(system.name);
  question.price_kind = catalog::price_kind_of(question.price, arguments.price);
  question.constants = &constants;
  question.site_power_watts *= 1e3;
  std::optional<catalog::Storage> storage;
  if (!arguments.storage.empty()) {
    storage = catalog::storage_from(catalog::load_entry(files, arguments.storage));
    question.storage = &*storage;
  }
  if (arguments.software.empty()) question.exits = plan::open_exits(sets, constants);
  std::vector<catalog::Benchmark> benchmarks;
  if (!arguments.benchmark.empty()) {
    benchmarks = load_benchmarks(files, folders);
    question.benchmark = catalog::find_benchmark(benchmarks, arguments.benchmark);
    if (question.benchmark == nullptr) {
      std::vector<std::string> names;
      names.reserve(benchmarks.size());
      for (const catalog::Benchmark& each : benchmarks) names.push_back(each.name);
      std::sort(names.begin(), names.end());
      fail(ErrorKind::usage, "--benchmark: '{}' is unknown; accepted: {}", arguments.benchmark,
           join(names, ", "));
    }
  }
  if (!arguments.anchor.empty()) {
    const auto errors = plan::measured_errors(
        anchor_rows(arguments.anchor, system.name, folders, catalog), sets, arguments.software);
    for (const plan::MeasuredError& error : errors) {
      if (error.kind.chip == system.chip.name) continue;
      print_message(fmt::format("--anchor: a row measured on {} corrects a prediction for {}\n",
                                error.kind.chip, system.chip.name));
    }
    question.correction =
        plan::correction_for(plan::spread_of(sets), errors, plan::row_kind(recipe, system.chip));
    question.interval = plan::interval_with(sets, constants, question.correction);
  }
  plan::PipelineSimulator simulator;
  const plan::RunForecast forecast = plan::forecast_run(question, simulator);
  const plan::StepPrediction& step = forecast.step;
  const int code = forecast.memory.fits ? int{exit_ok} : exit_does_not_fit;
  if (code == exit_ok) warn_no_price(catalog, system);
  if (arguments.json) {
    Json json = plan::to_json(forecast, question);
    json["split_seconds"] = split_json(step.split);
    print_json(json);
    return code;
  }
  if (code != exit_ok) {
    print_text(format_pairs(plan::describe(forecast, question)));
    return code;
  }
  std::vector<std::vector<std::string>> parts = {{"part of a step", "seconds", "share"}};
  const Json split = split_json(step.split);
  for (const auto& [name, seconds] : split.items()) {
    const double value = seconds.get<double>();
    if (value < 1e-4 * step.step_seconds) continue;
    parts.push_back({name, fmt::format("{:.4f}", value),
                     fmt::format("{:.1f}%", 100 * value / step.step_seconds)});
  }
  print_text(format_pairs(plan::describe(forecast, question)));
  print_text(format_table(parts));
  return exit_ok;
}

void add_run_options(CLI::App& command, PredictArguments& arguments) {
  plan::RunQuestion& question = arguments.question;
  CLI::Option* benchmark =
      command
          .add_option("--benchmark", arguments.benchmark,
                      "Train to the target of this MLPerf benchmark instead of train.steps")
          ->type_name("NAME");
  for (const char* name : {"--checkpoint-seconds", "--save-seconds", "--restart-seconds",
                           "--partial-restart-share", "--memory-checkpoint-share"}) {
    benchmark->excludes(name);  // its runs cannot be resumed
  }
  command.add_option("--ruleset", question.ruleset, "Of the benchmark; default: the newest")
      ->type_name("X.Y.Z")
      ->needs(benchmark);
  command
      .add_option("--slow-node-share", question.slow.share, "Share of nodes slower than the others")
      ->check(between(0, 1))
      ->capture_default_str();
  command
      .add_option("--slow-node-factor", question.slow.factor,
                  "How many times as long a step takes on them")
      ->check(between(1, 100))
      ->capture_default_str();
  command
      .add_option("--preemptions-per-day", question.spot.preemptions_per_node_per_day,
                  "With --price spot: times a node is taken away per day")
      ->check(between(0, 1e6))
      ->capture_default_str();
  command
      .add_option("--notice-seconds", question.spot.notice_seconds,
                  "With --price spot: notice before")
      ->check(between(0, 1e9))
      ->capture_default_str();
  command
      .add_option("--simulate-failures", question.played_runs,
                  "Also simulate this many whole runs under random failures")
      ->check(CLI::Range(1, 100'000))
      ->type_name("RUNS");
  command.add_option("--seed", question.seed, "Of --simulate-failures")->capture_default_str();
  command.add_option("--repair-seconds", question.repair_seconds, "Until a failed node is back")
      ->check(between(0, 1e9))
      ->capture_default_str();
  command.add_option("--budget", question.budget_usd, "USD that the run may cost")
      ->check(between(0, 1e15))
      ->type_name("USD");
  command
      .add_option("--site-kilowatts", question.site_power_watts,
                  "Power that the facility has for the run")
      ->check(between(0, 1e12))
      ->type_name("KW");
}

}  // namespace

void add_plan_predict(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<PredictArguments>();
  CLI::App* command =
      group.add_subcommand("predict", "Step time, memory, time, cost and energy of a recipe");
  command->add_option("RECIPE", arguments->recipe, "Recipe file or name")->required();
  command->add_option("OVERRIDES", arguments->overrides, "key=value, such as parallel.tp=8");
  command->add_option("--system", arguments->system, "A system of the catalog (plan systems)")
      ->required();
  command
      ->add_option("--gpus", arguments->gpus, "GPUs; sets parallel.dp unless the mesh has so many")
      ->check(at_least(1));
  add_profile_option(*command, arguments->profile);
  command->add_option("--software", arguments->software, "Software whose fitted constants to use");
  command
      ->add_option("--anchor", arguments->anchor,
                   "CSV of steps that you measured with this software (docs/planner.md)")
      ->type_name("FILE");
  command
      ->add_option("--storage", arguments->storage,
                   "Of every node, as `tutti bench storage --catalog FILE` measured it")
      ->type_name("FILE");
  command->add_option("--site", arguments->site, "Where it runs: PUE, water, grid")
      ->capture_default_str();
  add_price_option(*command, arguments->price);
  add_failure_options(*command, arguments->question.failures);
  add_run_options(*command, *arguments);
  add_catalog_option(*command, arguments->catalog);
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti plan predict gpt2-124m --system azure-nd-h100-v5 --gpus 8 "
      "batch.global=64\n"
      "  tutti plan predict gpt2-124m --system azure-nd-h100-v5 --gpus 8 batch.global=64 "
      "--simulate-failures 100\n"
      "  tutti plan predict gpt2-124m --system dgx-h100 --gpus 8 batch.global=64 --storage "
      "scratch.yaml");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_predict(*arguments); }; });
}

}  // namespace tutti::cli
