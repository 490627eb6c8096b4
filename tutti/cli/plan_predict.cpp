// `tutti plan predict`: what one recipe takes on one system; nothing is trained.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/common.h"
#include "tutti/cli/plan_common.h"
#include "tutti/plan/bill.h"
#include "tutti/plan/failures.h"

namespace tutti::cli {
namespace {

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
  const spec::Recipe recipe = planned_recipe(arguments.recipe, arguments.overrides, arguments.gpus);
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
  const plan::InterruptionInterval interruptions =
      plan::interruption_interval(arguments.failures, nodes, failures.wall_seconds / 86400);
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
    print_json(
        {{"fits", memory.fits},
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
         {"interruptions_interval", {{"low", interruptions.low}, {"high", interruptions.high}}},
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

}  // namespace tutti::cli
