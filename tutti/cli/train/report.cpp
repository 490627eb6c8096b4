#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/run_page.h"
#include "tutti/report/comparison.h"
#include "tutti/report/run_report.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

constexpr const char* kComparisonName = "comparison.html";

struct ReportArguments {
  std::vector<std::string> runs;
  std::string out;
  bool json = false;
};

report::RunData read_with_progress(FileSystem& files, const std::string& folder) {
  constexpr int64_t kMiB = 1 << 20;
  telemetry::ProgressBar progress("read " + folder, "MiB");
  report::RunData run = report::read_run(files, folder, [&](int64_t done, int64_t total) {
    progress.update(done / kMiB, total / kMiB);
  });
  progress.finish();
  return run;
}

Json differences_json(const std::vector<report::RunData>& runs) {
  Json out = Json::array();
  for (const report::Difference& difference : report::differences(runs)) {
    out.push_back({{"key", difference.key}, {"values", difference.values}});
  }
  return out;
}

int run_report(const ReportArguments& arguments) {
  FileSystem& files = posix_file_system();
  const double now = wall_seconds();
  std::vector<report::RunData> runs;
  std::vector<report::RunSummary> summaries;
  for (const std::string& folder : arguments.runs) {
    runs.push_back(read_with_progress(files, folder));
    summaries.push_back(report::summarize(runs.back(), now));
  }
  const bool one = runs.size() == 1;
  const std::string path = !arguments.out.empty() ? arguments.out
                           : one                  ? report_path(arguments.runs.front())
                                                  : kComparisonName;
  write_file_atomic(files, path,
                    report::render(one ? report::run_page(runs[0], summaries[0], now)
                                       : report::comparison_page(runs, summaries, now)));
  if (!arguments.json) {
    print_text(path + "\n");
    return exit_ok;
  }
  Json result = Json::object();
  if (one) {
    result = report::to_json(summaries[0]);
  } else {
    result["runs"] = Json::array();
    for (const report::RunSummary& summary : summaries) {
      result["runs"].push_back(report::to_json(summary));
    }
    result["differences"] = differences_json(runs);
  }
  result["report"] = path;
  print_json(result);
  return exit_ok;
}

}  // namespace

std::string report_path(const std::string& run_folder) {
  return join_path(run_folder, "report.html");
}

std::string write_run_page(FileSystem& files, const std::string& run_folder) {
  const double now = wall_seconds();
  const report::RunData run = report::read_run(files, run_folder);
  const std::string path = report_path(run_folder);
  write_file_atomic(files, path,
                    report::render(report::run_page(run, report::summarize(run, now), now)));
  return path;
}

void add_report(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "Plot a run, or compare runs, as one HTML page");
  command->add_option("RUN", arguments->runs, "Run folders; several are overlaid in one page")
      ->required();
  command
      ->add_option("--out", arguments->out,
                   "File to write; default RUN/report.html, for several runs comparison.html")
      ->type_name("FILE");
  add_json_option(*command, arguments->json);
  command->footer(
      "The page needs no network and no other file. A run that is still running, or was killed,\n"
      "can be plotted too; 'tutti train' writes the page when it ends.\n\n"
      "Examples:\n"
      "  tutti report runs/demo-20260131-120000\n"
      "  tutti report runs/a runs/b --out a-and-b.html");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_report(*arguments); }; });
}

}  // namespace tutti::cli
