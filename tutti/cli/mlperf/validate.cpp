#include "tutti/mlperf/validate.h"

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/cli/mlperf/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

struct MlperfValidateArguments {
  std::string results;
  std::string reference;
  mlperf::ValidationOptions options;
  bool json = false;
};

std::vector<mlperf::Workload> read(const std::string& path) {
  telemetry::ProgressBar progress("read " + path, "results");
  auto workloads = mlperf::read_workloads(posix_file_system(), path, mlperf_benchmarks(),
                                          [&](int64_t done, int64_t total) {
                                            throw_if_interrupted();
                                            progress.update(done, total);
                                          });
  progress.finish();
  return workloads;
}

int run_validate(const MlperfValidateArguments& arguments) {
  const auto results = read(arguments.results);
  const auto validation = mlperf::validate(results, read(arguments.reference), arguments.options);
  const std::string text = mlperf::format_validation(validation);
  if (arguments.json) {
    print_message(text);
    print_json(mlperf::to_json(validation));
  } else {
    print_text(text);
  }
  if (validation.all(mlperf::Judgement::pass)) return exit_ok;
  return validation.any(mlperf::Judgement::short_of) ? static_cast<int>(exit_failed) : kNoVerdict;
}

}  // namespace

void add_mlperf_validate(CLI::App& group, Action& action) {
  CLI::App* validate =
      group.add_subcommand("validate", "Check that a machine is as fast as a reference");
  const auto arguments = std::make_shared<MlperfValidateArguments>();
  validate
      ->add_option("RESULTS", arguments->results, "Folder of repeated runs or of MLPerf results")
      ->required();
  validate->add_option("--reference", arguments->reference, "The same for the reference machine")
      ->required()
      ->type_name("FOLDER");
  validate
      ->add_option("--threshold", arguments->options.threshold,
                   "Required share of the reference's performance")
      ->check(between(0.01, 1))
      ->capture_default_str();
  validate->add_flag("--strict", arguments->options.strict,
                     "Require the whole 95% interval to reach the threshold");
  add_json_option(*validate, arguments->json);
  validate->footer(
      "Five repeats or more of each workload, with the same hyperparameters; runs with NaN or\n"
      "skipped steps do not count. Exit code 0: every workload passes; 1: one falls short; 3: no\n"
      "verdict (too few or invalid repeats, noise, nothing to compare with).\n\n"
      "Example:\n  tutti mlperf validate runs/new-cluster --reference runs/reference --strict");
  validate->callback(
      [arguments, &action] { action = [arguments] { return run_validate(*arguments); }; });
}

}  // namespace tutti::cli
