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
    sets = plan::fit_groups(rows, fitted, {}, &reports);
    for (const plan::FitReport& report : reports) {
      print_message(fmt::format("fitted {} on {} rows: mean error {:.1f}% -> {:.1f}%\n",
                                report.group, report.rows, 100 * report.mape_before,
                                100 * report.mape_after));
    }
  }
  const plan::Validation validation = plan::validate_rows(rows, sets, fitted);
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
  add_systems(*plan, action);
  add_validate(*plan, action);
}

}  // namespace tutti::cli
