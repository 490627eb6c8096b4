// `tutti plan`: the verbs of the planner. Each prices what a recipe describes; nothing is trained.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/commands.h"
#include "tutti/cli/common.h"
#include "tutti/cli/home.h"
#include "tutti/cli/progress_bar.h"
#include "tutti/plan/bill.h"
#include "tutti/plan/failures.h"
#include "tutti/plan/fit.h"
#include "tutti/plan/validate.h"

namespace tutti::cli {
namespace {

// The catalog that comes with the program, then the user's own folder.
std::vector<std::string> catalog_folders(const std::string& own) {
  std::vector<std::string> folders;
  for (const std::string& home : home_folders(posix_file_system())) {
    const std::string folder = join_path(home, "catalog");
    if (posix_file_system().is_directory(folder)) {
      folders.push_back(folder);
      break;
    }
  }
  if (!own.empty()) folders.push_back(own);
  if (folders.empty()) {
    fail(ErrorKind::not_found,
         "no catalog folder beside the program; set TUTTI_HOME to the folder "
         "that holds catalog/ and recipes/, or give --catalog FOLDER");
  }
  return folders;
}

void add_catalog_option(CLI::App& command, std::string& folder) {
  command
      .add_option(
          "--catalog", folder,
          "Folder of further entries (chips/, systems/, ...); replaces ours of the same name")
      ->type_name("FOLDER");
}

struct SystemsArguments {
  std::string catalog;
  bool json = false;
};

int run_systems(const SystemsArguments& arguments) {
  const catalog::Catalog catalog =
      catalog::load_catalog(posix_file_system(), catalog_folders(arguments.catalog));
  Json list = Json::array();
  std::vector<std::vector<std::string>> cells = {{"system", "chip", "per node", "bf16 TFLOP/s",
                                                  "fp8", "memory", "link", "network", "W",
                                                  "USD/h"}};
  for (const catalog::System& system : catalog.systems) {
    const catalog::Chip& chip = system.chip;
    const catalog::Price* price = catalog.price_of(system.name);
    const double usd = price == nullptr ? 0 : price->on_demand_usd_per_hour;
    const double link = system.tiers.front().bytes_per_second;
    const double network = system.tiers.back().bytes_per_second;
    list.push_back({{"system", system.name},
                    {"chip", chip.name},
                    {"chips_per_node", system.chips_per_node},
                    {"bf16_flops", chip.bf16_flops},
                    {"fp8_flops", chip.fp8_flops},
                    {"fp4_flops", chip.fp4_flops},
                    {"memory_bytes", chip.memory_bytes},
                    {"link_bytes_per_second", link},
                    {"network_bytes_per_second", network},
                    {"board_watts", chip.board_watts},
                    {"on_demand_chip_usd_per_hour", usd > 0 ? Json(usd) : Json(nullptr)}});
    cells.push_back({system.name, chip.name, fmt::format("{}", system.chips_per_node),
                     fmt::format("{:.0f}", chip.bf16_flops / 1e12),
                     chip.fp8_flops > 0 ? fmt::format("{:.0f}", chip.fp8_flops / 1e12) : "-",
                     fmt::format("{:.0f} GB", chip.memory_bytes / 1e9),
                     fmt::format("{:.0f} GB/s", link / 1e9),
                     fmt::format("{:.1f} GB/s", network / 1e9),
                     chip.board_watts > 0 ? fmt::format("{:.0f}", chip.board_watts) : "-",
                     usd > 0 ? fmt::format("{:.2f}", usd) : "-"});
  }
  if (arguments.json) {
    print_json({{"systems", std::move(list)}});
  } else {
    print_text(format_table(cells));
    print_message(
        "Peaks are dense; link and network are of one chip, one direction; prices are on "
        "demand, per chip.\n");
  }
  return exit_ok;
}

void add_systems(CLI::App& plan, Action& action) {
  const auto arguments = std::make_shared<SystemsArguments>();
  CLI::App* command =
      plan.add_subcommand("systems", "List the systems of the catalog and check it");
  add_catalog_option(*command, arguments->catalog);
  add_json_option(*command, arguments->json);
  command->footer("Example:\n  tutti plan systems --catalog my_catalog");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_systems(*arguments); }; });
}

struct PredictArguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string system;
  std::string catalog;
  std::string profile = "megatron-te";
  std::string software;
  std::string site = "us-average";
  std::string price = "on-demand";
  int64_t gpus = 0;
  plan::FailureModel failures;
  bool json = false;
};

// Data-parallel ranks follow from the number of GPUs unless the recipe says them.
spec::Recipe recipe_for(const PredictArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::string path = find_recipe(files, arguments.recipe);
  const std::string text = read_file(files, path);
  spec::Recipe recipe = spec::parse_recipe(text, path, arguments.overrides, models_folder(files));
  if (arguments.gpus == 0 || recipe.parallel.world() == arguments.gpus) return recipe;
  const spec::Mesh& mesh = recipe.parallel;
  const int64_t rest = mesh.tp * mesh.pp * mesh.cp;
  if (arguments.gpus % rest != 0) {
    fail(ErrorKind::usage, "--gpus: {} is not a multiple of tp {} x pp {} x cp {} = {}",
         arguments.gpus, mesh.tp, mesh.pp, mesh.cp, rest);
  }
  std::vector<std::string> overrides = arguments.overrides;
  overrides.push_back(fmt::format("parallel.dp={}", arguments.gpus / rest));
  return spec::parse_recipe(text, path, overrides, models_folder(files));
}

Json split_json(const plan::Split& split) {
  return {{"products", split.products},
          {"memory", split.memory},
          {"recompute", split.recompute},
          {"tp", split.tp},
          {"cp", split.cp},
          {"ep", split.ep},
          {"pp", split.pp},
          {"dp", split.dp},
          {"bubble", split.bubble},
          {"optimizer", split.optimizer},
          {"host", split.host}};
}

int run_predict(const PredictArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::vector<std::string> folders = catalog_folders(arguments.catalog);
  const catalog::Catalog catalog = catalog::load_catalog(files, folders);
  const catalog::System& system = catalog.system(arguments.system);
  const catalog::Site& site = catalog.site(arguments.site);
  const catalog::PriceKind kind = catalog::parse_price_kind(arguments.price);
  const std::vector<plan::Constants> sets = plan::load_constants(files, folders);
  const plan::Constants* found =
      plan::find_constants(sets, system.chip.generation, arguments.software);
  const plan::Constants constants = found != nullptr ? *found : plan::assumed_constants();
  const spec::Profile& profile = spec::find_profile(arguments.profile);
  const spec::Recipe recipe = recipe_for(arguments);
  const int64_t gpus = recipe.parallel.world();
  if (system.largest_chips > 0 && gpus > system.largest_chips) {
    fail(ErrorKind::usage, "--gpus: {} are more than the {} that {} has", gpus,
         system.largest_chips, system.name);
  }

  plan::PipelineSimulator simulator;
  plan::Predictor predictor(system, constants, simulator);
  const plan::StepPrediction step = predictor.step(recipe, profile);
  const plan::MemoryPrediction memory = plan::predict_memory(recipe, profile, system, constants);
  const double work = step.step_seconds * static_cast<double>(recipe.train.steps);
  const int64_t nodes = (gpus + system.chips_per_node - 1) / system.chips_per_node;
  const plan::FailureForecast failures = plan::forecast_failures(arguments.failures, nodes, work);
  const catalog::Price* price = catalog.price_of(system.name);
  const plan::Bill bill =
      plan::bill_of(system, site, price, kind, step, gpus, failures.wall_seconds);
  // Twice the mean error on held-out runs; where nobody has measured, a quarter either way.
  const double error = constants.error > 0 ? 2 * constants.error : 0.25;
  const double minutes = failures.wall_seconds / 60;
  const double tokens = static_cast<double>(recipe.train.steps) *
                        static_cast<double>(recipe.batch.global * recipe.batch.sequence);

  if (arguments.json) {
    Json memory_json = Json::object();
    for (const auto& [name, bytes] : memory.kinds) memory_json[name] = bytes;
    print_json({{"fits", memory.fits},
                {"step_seconds", step.step_seconds},
                {"split_seconds", split_json(step.split)},
                {"bottleneck", step.bottleneck},
                {"tokens_per_second_per_gpu", step.tokens_per_second_per_chip},
                {"mfu", step.mfu_causal},
                {"mfu_square", step.mfu_square},
                {"hardware_utilisation", step.hardware_utilisation},
                {"memory_bytes_per_rank", memory.bytes},
                {"memory_by_kind_bytes", memory_json},
                {"tokens", tokens},
                {"time_to_target_minutes", minutes},
                {"goodput", failures.goodput},
                {"interruptions", failures.interruptions},
                {"checkpoint_interval_seconds", failures.interval_seconds},
                {"cost_usd", bill.usd ? Json(*bill.usd) : Json(nullptr)},
                {"energy_kwh", bill.facility_kwh},
                {"co2e_kg", bill.co2e_kg},
                {"water_liters", bill.water_liters},
                {"interval",
                 {{"low_minutes", minutes * (1 - error)}, {"high_minutes", minutes * (1 + error)}}},
                {"constants", constants.name},
                {"gpus", gpus},
                {"system", system.name}});
    return exit_ok;
  }
  std::vector<std::vector<std::string>> parts = {{"part of a step", "seconds", "share"}};
  const Json split = split_json(step.split);
  for (const auto& [name, seconds] : split.items()) {
    const double value = seconds.get<double>();
    if (value < 1e-4 * step.step_seconds) continue;
    parts.push_back({name, fmt::format("{:.4f}", value),
                     fmt::format("{:.1f}%", 100 * value / step.step_seconds)});
  }
  print_text(format_pairs(
      {{"system", fmt::format("{} x {} ({})", gpus, system.chip.name, system.name)},
       {"constants",
        fmt::format("{}{}", constants.name,
                    constants.error > 0 ? fmt::format(", {:.0f}% mean error on held-out runs",
                                                      100 * constants.error)
                                        : ", not measured: a quarter either way")},
       {"memory",
        fmt::format("{} of {} per GPU: {}", format_bytes(memory.bytes),
                    format_bytes(system.chip.memory_bytes), memory.fits ? "fits" : "DOES NOT FIT")},
       {"step",
        fmt::format("{}, limited by {}", format_seconds(step.step_seconds), step.bottleneck)},
       {"speed",
        fmt::format("{:.0f} tokens/s/GPU, MFU {:.1f}% (causal), {:.1f}% (square)",
                    step.tokens_per_second_per_chip, 100 * step.mfu_causal, 100 * step.mfu_square)},
       {"run", fmt::format("{} tokens in {} ({} to {})", format_count(tokens),
                           format_seconds(failures.wall_seconds),
                           format_seconds(failures.wall_seconds * (1 - error)),
                           format_seconds(failures.wall_seconds * (1 + error)))},
       {"failures", fmt::format("{:.1f} interruptions, goodput {:.1f}%, a checkpoint every {}",
                                failures.interruptions, 100 * failures.goodput,
                                format_seconds(failures.interval_seconds))},
       {"estimated cost", bill.usd ? fmt::format("USD {:.0f} ({}, {})", *bill.usd, arguments.price,
                                                 price->entry.quantities.begin()->second.date)
                                   : "no price of this system in the catalog"},
       {"estimated energy",
        fmt::format("{:.0f} kWh, {:.0f} kg CO2e, {:.0f} l water ({})", bill.facility_kwh,
                    bill.co2e_kg, bill.water_liters, site.name)}}));
  print_text(format_table(parts));
  return exit_ok;
}

void add_predict(CLI::App& plan, Action& action) {
  const auto arguments = std::make_shared<PredictArguments>();
  CLI::App* command =
      plan.add_subcommand("predict", "Step time, memory, time, cost and energy of a recipe");
  command->add_option("RECIPE", arguments->recipe, "Recipe file or name")->required();
  command->add_option("OVERRIDES", arguments->overrides, "key=value, such as parallel.tp=8");
  command->add_option("--system", arguments->system, "A system of the catalog (plan systems)")
      ->required();
  command
      ->add_option("--gpus", arguments->gpus, "GPUs; sets parallel.dp unless the mesh has so many")
      ->check(at_least(1));
  command
      ->add_option("--profile", arguments->profile,
                   "Implementation: tutti, megatron-2022, megatron-te")
      ->capture_default_str();
  command->add_option("--software", arguments->software, "Software whose fitted constants to use");
  command->add_option("--site", arguments->site, "Where it runs: PUE, water, grid")
      ->capture_default_str();
  command->add_option("--price", arguments->price, "on-demand, spot or reserved")
      ->capture_default_str();
  command
      ->add_option("--node-failures-per-day", arguments->failures.per_node_per_day,
                   "Interruptions per node and day")
      ->capture_default_str();
  command
      ->add_option("--job-failures-per-day", arguments->failures.per_job_per_day,
                   "Interruptions per day that do not grow with nodes")
      ->capture_default_str();
  command
      ->add_option("--checkpoint-seconds", arguments->failures.interval_seconds,
                   "Between checkpoints; 0: the best (Daly)")
      ->capture_default_str();
  add_catalog_option(*command, arguments->catalog);
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti plan predict gpt2-124m --system azure-nd-h100-v5 --gpus 8 "
      "batch.global=64");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_predict(*arguments); }; });
}

struct ValidateArguments {
  std::string file;
  std::string catalog;
  std::string write_fit;
  bool fit = false;
  bool rows = false;
  bool json = false;
};

int run_validate(const ValidateArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::vector<std::string> folders = catalog_folders(arguments.catalog);
  const catalog::Catalog catalog = catalog::load_catalog(files, folders);
  const CsvTable table = parse_csv(read_file(files, arguments.file), arguments.file);
  std::vector<plan::PreparedRow> rows;
  for (plan::Measurement& row : plan::read_measurements(table, plan::load_sources(files, folders),
                                                        catalog, models_folder(files))) {
    rows.emplace_back(std::move(row), catalog);
  }
  std::vector<plan::Constants> sets = plan::load_constants(files, folders);
  const std::vector<bool> fitted = plan::fitted_half(rows);
  std::vector<plan::FitReport> reports;
  if (arguments.fit) {
    ProgressBar progress("fit", "sets of constants");
    sets = plan::fit_groups(rows, fitted, {}, &reports, [&](int64_t done, int64_t total) {
      throw_if_interrupted();
      progress.update(done, total);
    });
    progress.finish();
    for (const plan::FitReport& report : reports) {
      print_message(fmt::format("fitted {} on {} rows: mean error {:.1f}% -> {:.1f}%\n",
                                report.group, report.rows, 100 * report.mape_before,
                                100 * report.mape_after));
    }
  }
  const plan::Validation validation = plan::validate_rows(rows, sets, fitted);
  plan::set_held_out_errors(rows, validation, sets);
  if (!arguments.write_fit.empty()) {
    for (const plan::Constants& set : sets) {
      std::string name = set.name;
      for (char& c : name) c = c == '/' ? '-' : c;
      files.create_directories(join_path(arguments.write_fit, "constants"));
      write_file_atomic(
          files, join_path(arguments.write_fit, "constants/" + name + ".yaml"),
          plan::to_yaml(set, "fitted on half of " + base_name(arguments.file), "2026-11-20"));
    }
  }
  if (arguments.json) {
    print_json(plan::to_json(validation));
  } else {
    print_text(plan::format_validation(validation, arguments.rows));
  }
  return exit_ok;
}

void add_validate(CLI::App& plan, Action& action) {
  const auto arguments = std::make_shared<ValidateArguments>();
  CLI::App* command =
      plan.add_subcommand("validate", "Predict published measurements and show every error");
  command->add_option("FILE", arguments->file, "CSV of measurements (docs/planner.md)")->required();
  add_catalog_option(*command, arguments->catalog);
  command->add_flag("--fit", arguments->fit, "First fit the constants on every other layout");
  command->add_option("--write-fit", arguments->write_fit, "Write the constants below this folder")
      ->type_name("FOLDER");
  command->add_flag("--rows", arguments->rows, "Show every row, not only the summary");
  add_json_option(*command, arguments->json);
  command->footer("Example:\n  tutti plan validate measurements.csv --rows");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_validate(*arguments); }; });
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* plan = app.add_subcommand("plan", "Price a training run before it is run");
  plan->require_subcommand(1);
  add_predict(*plan, action);
  add_systems(*plan, action);
  add_validate(*plan, action);
}

}  // namespace tutti::cli
