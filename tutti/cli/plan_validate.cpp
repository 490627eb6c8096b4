// `tutti plan validate`: published measurements, predicted.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/common.h"
#include "tutti/cli/home.h"
#include "tutti/cli/plan_common.h"
#include "tutti/cli/progress_bar.h"
#include "tutti/plan/fit.h"
#include "tutti/plan/validate.h"

namespace tutti::cli {
namespace {

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

}  // namespace

void add_plan_validate(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<ValidateArguments>();
  CLI::App* command =
      group.add_subcommand("validate", "Predict published measurements and show every error");
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

}  // namespace tutti::cli
