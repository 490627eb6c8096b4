#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/cli/mlperf/common.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/mlperf/compliance.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

struct MlperfArguments {
  std::vector<std::string> paths;
  std::string ruleset;
  bool runs = false;  // score: a table of the runs too
  bool json = false;
};

int run_check(const MlperfArguments& arguments) {
  FileSystem& files = posix_file_system();
  const auto known = mlperf_benchmarks();
  mlperf::ComplianceCheck check;
  std::vector<std::string> rulesets;
  telemetry::ProgressBar progress("check", "paths");
  for (size_t i = 0; i < arguments.paths.size(); ++i) {
    throw_if_interrupted();
    const std::string& path = arguments.paths[i];
    // A root above several rounds: each result is of its own.
    const auto rules_for = [&](const std::string& below) -> const mlperf::Ruleset& {
      const mlperf::Ruleset& ruleset = ruleset_for(arguments.ruleset, below, nullptr);
      rulesets.push_back(ruleset.version);
      return ruleset;
    };
    mlperf::check_path(files, path, rules_for, known, check);
    progress.update(static_cast<int64_t>(i) + 1, static_cast<int64_t>(arguments.paths.size()));
  }
  progress.finish();
  std::sort(rulesets.begin(), rulesets.end());
  rulesets.erase(std::unique(rulesets.begin(), rulesets.end()), rulesets.end());
  if (arguments.json) print_json(check_json(check, rulesets));
  else print_text(format_check(check, rulesets));
  if (mlperf::compliant(check.findings)) return exit_ok;
  return mlperf::only_too_fast(check.findings) ? kTooFast : static_cast<int>(exit_failed);
}

int run_score(const MlperfArguments& arguments) {
  const auto scores = mlperf_scores(arguments.paths, arguments.ruleset);
  const bool all = std::all_of(scores.begin(), scores.end(), mlperf::official);
  if (arguments.json) {
    Json results = Json::array();
    for (const mlperf::Score& score : scores) results.push_back(mlperf::to_json(score));
    print_json({{"results", std::move(results)}});
  } else {
    print_text(format_scores(scores));
    if (arguments.runs) print_text("\n" + format_runs(scores));
  }
  if (!all) return exit_failed;
  const bool too_fast = std::any_of(scores.begin(), scores.end(), [](const mlperf::Score& score) {
    return score.reference.known && !score.reference.pass;
  });
  return too_fast ? kTooFast : static_cast<int>(exit_ok);
}

std::shared_ptr<MlperfArguments> add_options(CLI::App& command, const char* paths) {
  auto arguments = std::make_shared<MlperfArguments>();
  command.add_option("PATH", arguments->paths, paths)->required();
  command.add_option("--ruleset", arguments->ruleset,
                     "Rules: " + join(mlperf::ruleset_versions(), ", ") +
                         "; default: those of the round in the path (v4.1)");
  add_json_option(command, arguments->json);
  return arguments;
}

}  // namespace

void add_mlperf(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("mlperf", "Run, check and score MLPerf Training results");
  group->require_subcommand(1);
  group->footer("Example:\n  tutti mlperf score training_results_v4.1/*/results/*/llama2_70b_lora");

  CLI::App* check = group->add_subcommand("check", "Check logs and results against the rules");
  const auto check_arguments = add_options(*check, "Logs, folders of result_N.txt, or submissions");
  check->footer(
      "Exit code 0 when all comply; 4 when the only errors are results that converged faster than\n"
      "the reference allows; else 1. docs/mlperf.md lists the rules.\n\n"
      "Example:\n  tutti mlperf check results/my-system/llama31_8b --ruleset 6.0.0");
  check->callback([check_arguments, &action] {
    action = [check_arguments] { return run_check(*check_arguments); };
  });

  CLI::App* score = group->add_subcommand("score", "Score results: minutes to target");
  const auto score_arguments =
      add_options(*score, "Folders of result_N.txt, or parents of such folders");
  score->add_flag("--runs", score_arguments->runs,
                  "Also list each run: minutes, samples, steady step, evaluation, start-up");
  score->footer(
      "Minutes are scaled where runs converged faster than the reference; raw minutes are as "
      "logged.\n"
      "Exit code 1 when a result has no official score; 4 when one converged faster than the\n"
      "reference allows.\n\n"
      "Example:\n  tutti mlperf score results/my-system/llama31_8b --json");
  score->callback([score_arguments, &action] {
    action = [score_arguments] { return run_score(*score_arguments); };
  });

  add_mlperf_run(*group, action);
  add_mlperf_compare(*group, action);
  add_mlperf_validate(*group, action);
  add_mlperf_claim(*group, action);
}

}  // namespace tutti::cli
