// `tutti plan validate`: published measurements, predicted.
#include "tutti/plan/validate.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/launch/home.h"
#include "tutti/plan/fit.h"
#include "tutti/plan/left_out.h"
#include "tutti/plan/mlperf_rows.h"
#include "tutti/plan/protocols.h"
#include "tutti/plan/reliability.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

struct ValidateArguments {
  std::vector<std::string> files;
  std::string catalog;
  std::string source;
  std::string transfer;
  std::string left_out = "Llama 3 Herd";
  std::string write_fit;
  std::string leave_out;
  std::string anchor;
  bool fit = false;
  bool leave_one_model_out = false;
  bool rows = false;
  bool json = false;
};

// Interruptions, effective time and power (plan/reliability.h).
int run_reliability(const ValidateArguments& arguments, const CsvTable& table,
                    const std::vector<std::string>& folders, const catalog::Catalog& catalog) {
  FileSystem& files = posix_file_system();
  plan::FailureModel model = plan::load_failure_model(files, folders);
  if (arguments.fit) model = plan::fit_failures(table, model, arguments.left_out);
  const std::vector<plan::ReliabilityRow> rows = plan::validate_reliability(table, model, catalog);
  if (arguments.json) {
    print_json(plan::to_json(rows, model));
  } else {
    print_text(plan::format_reliability(rows, model));
  }
  return exit_ok;
}

std::vector<plan::PreparedRow> prepared_rows(const ValidateArguments& arguments,
                                             const std::vector<CsvTable>& tables,
                                             const std::vector<std::string>& folders,
                                             const catalog::Catalog& catalog) {
  FileSystem& files = posix_file_system();
  const std::vector<plan::MeasurementSource> sources = plan::load_sources(files, folders);
  std::vector<plan::PreparedRow> rows;
  for (const CsvTable& table : tables) {
    const auto read =
        plan::is_mlperf_table(table) ? plan::read_mlperf_results : plan::read_measurements;
    for (plan::Measurement& row : read(table, sources, catalog, launch::models_folder(files))) {
      if (!starts_with(row.source, arguments.source)) continue;
      rows.emplace_back(std::move(row), catalog);
    }
  }
  if (rows.empty()) {
    fail(ErrorKind::usage, "--source: no row of {} has a source that begins with '{}'",
         join(arguments.files, ", "), arguments.source);
  }
  plan::reject_other_conventions(rows);
  return rows;
}

void write_sets(const ValidateArguments& arguments, const std::vector<plan::Constants>& sets) {
  FileSystem& files = posix_file_system();
  std::vector<std::string> names;
  for (const std::string& file : arguments.files) names.push_back(base_name(file));
  const std::string date = format_utc(wall_seconds()).substr(0, 10);
  for (const plan::Constants& set : sets) {
    std::string name = set.name;
    for (char& c : name) c = c == '/' ? '-' : c;
    files.create_directories(join_path(arguments.write_fit, "constants"));
    write_file_atomic(files, join_path(arguments.write_fit, "constants/" + name + ".yaml"),
                      plan::to_yaml(set,
                                    (set.software == plan::kAny ? "fitted on all rows of "
                                                                : "fitted on half of ") +
                                        join(names, ", "),
                                    date));
  }
}

int run_leave_out(const ValidateArguments& arguments, const std::vector<plan::PreparedRow>& rows) {
  telemetry::ProgressBar bar("fit", "groups left out");
  const plan::LeftOut left_out = plan::leave_out(rows, plan::parse_left_out(arguments.leave_out),
                                                 {}, [&](int64_t done, int64_t total) {
                                                   throw_if_interrupted();
                                                   bar.update(done, total);
                                                 });
  bar.finish();
  const plan::ReleaseSpread floor = plan::release_spread(rows);
  if (arguments.json) {
    Json json = plan::to_json(left_out.validation);
    json["left_out"] = plan::to_json(left_out);
    json["releases"] = plan::to_json(floor);
    print_json(json);
  } else {
    print_text(plan::format_validation(left_out.validation, arguments.rows) + "\n" +
               plan::format_left_out(left_out) + "\n" + plan::format_releases(floor));
  }
  return exit_ok;
}

int run_validate(const ValidateArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::vector<std::string> folders = catalog_folders(arguments.catalog);
  const catalog::Catalog catalog = catalog::load_catalog(files, folders);
  std::vector<CsvTable> tables;
  for (const std::string& file : arguments.files) {
    tables.push_back(parse_csv(read_file(files, file), file));
    if (!plan::is_reliability_table(tables.back())) continue;
    if (arguments.files.size() > 1) {
      fail(ErrorKind::usage, "FILE: {} has interruptions; validate it alone", file);
    }
    return run_reliability(arguments, tables.back(), folders, catalog);
  }
  const std::vector<plan::PreparedRow> rows = prepared_rows(arguments, tables, folders, catalog);
  if (!arguments.leave_out.empty()) return run_leave_out(arguments, rows);

  telemetry::ProgressBar bar("fit", "sets of constants");
  const auto progress = [&](int64_t done, int64_t total) {
    throw_if_interrupted();
    bar.update(done, total);
  };
  plan::Validation validation;
  if (arguments.leave_one_model_out) {
    validation = plan::leave_one_model_out(rows, {}, progress);
  } else if (!arguments.transfer.empty()) {
    const size_t colon = arguments.transfer.find(':');
    if (colon == std::string::npos) {
      fail(ErrorKind::usage, "--transfer: '{}' is not two chips; write H100:H200",
           arguments.transfer);
    }
    validation = plan::transfer(rows, catalog, arguments.transfer.substr(0, colon),
                                arguments.transfer.substr(colon + 1), {}, progress);
  } else {
    std::vector<plan::Constants> sets = plan::load_constants(files, folders);
    // Without a fit every row counts.
    const std::vector<bool> fitted =
        arguments.fit ? plan::fitted_half(rows) : std::vector<bool>(rows.size(), false);
    std::vector<plan::FitReport> reports;
    if (arguments.fit) sets = plan::fit_groups(rows, fitted, {}, &reports, progress);
    if (!arguments.write_fit.empty()) {
      for (plan::Constants& set : plan::fit_pooled(plan::rows_of_time(rows), {})) {
        sets.push_back(std::move(set));
      }
      plan::set_left_out_intervals(rows, {}, progress, sets);
    }
    for (const plan::FitReport& report : reports) {
      print_message(fmt::format("fitted {} on {} rows: mean error {:.1f}% -> {:.1f}%\n",
                                report.group, report.rows, 100 * report.mape_before,
                                100 * report.mape_after));
    }
    validation = plan::validate_rows(rows, sets, fitted);
    if (!arguments.anchor.empty()) {
      plan::correct_rows(rows, sets,
                         plan::measured_errors(anchor_rows(arguments.anchor, "", folders, catalog),
                                               sets, std::nullopt),
                         validation);
    }
    plan::set_held_out_errors(rows, validation, sets);
    if (!arguments.write_fit.empty()) write_sets(arguments, sets);
  }
  bar.finish();
  const std::vector<plan::Ranking> rankings = plan::rank_layouts(rows, validation);
  if (arguments.json) {
    Json json = plan::to_json(validation);
    json["ranking"] = plan::to_json(rankings);
    print_json(json);
  } else {
    const std::string text = plan::format_rankings(rankings);
    print_text(plan::format_validation(validation, arguments.rows));
    if (!text.empty()) print_text("\n" + text);
  }
  return exit_ok;
}

}  // namespace

void add_plan_validate(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<ValidateArguments>();
  CLI::App* command =
      group.add_subcommand("validate", "Predict published measurements and show every error");
  command
      ->add_option("FILE", arguments->files,
                   "CSV files of measurements, MLPerf results or interruptions (docs/planner.md)")
      ->required();
  add_catalog_option(*command, arguments->catalog);
  command->add_option("--source", arguments->source, "Only rows whose source begins like this");
  CLI::Option* fit = command->add_flag(
      "--fit", arguments->fit,
      "First fit the constants on every other layout (of interruptions: on other sources)");
  CLI::Option* models = command->add_flag("--leave-one-model-out", arguments->leave_one_model_out,
                                          "Predict each model by constants fitted on the others");
  CLI::Option* transfer =
      command
          ->add_option("--transfer", arguments->transfer,
                       "Predict one chip by constants fitted on another and the data sheets")
          ->type_name("FROM:TO");
  fit->excludes(models)->excludes(transfer);
  models->excludes(transfer);
  command
      ->add_option("--leave-out", arguments->leave_out,
                   "Predict each family of software, chip generation or release by constants "
                   "fitted on the others, with and without one measured row of it")
      ->type_name("family|generation|software")
      ->excludes(fit)
      ->excludes(models)
      ->excludes(transfer);
  command
      ->add_option("--anchor", arguments->anchor,
                   "CSV of steps measured with the same software: corrects what is predicted")
      ->type_name("FILE")
      ->excludes(models)
      ->excludes(transfer);
  command
      ->add_option("--left-out", arguments->left_out, "Of interruptions, the source not fitted on")
      ->capture_default_str();
  command
      ->add_option("--write-fit", arguments->write_fit,
                   "With --fit: write the constants below this folder")
      ->needs(fit)
      ->type_name("FOLDER");
  command->add_flag("--rows", arguments->rows, "Show every row, not only the summary");
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti plan validate measurements.csv --fit --rows\n"
      "  tutti plan validate measurements.csv --transfer H100:H200");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_validate(*arguments); }; });
}

}  // namespace tutti::cli
