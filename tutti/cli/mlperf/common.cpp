#include "tutti/cli/mlperf/common.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/catalog.h"
#include "tutti/catalog/published.h"
#include "tutti/cli/program/common.h"
#include "tutti/launch/home.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

int64_t errors_in(const mlperf::ComplianceCheck& check) {
  return std::count_if(check.findings.begin(), check.findings.end(),
                       [](const mlperf::Finding& finding) { return !finding.warning; });
}

std::string cell(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string reference_cell(const mlperf::ReferenceTest& reference) {
  if (!reference.known) return "-";
  return reference.pass ? "pass" : "too fast";
}

}  // namespace

std::vector<catalog::Benchmark> mlperf_benchmarks() {
  FileSystem& files = posix_file_system();
  return catalog::load_benchmarks(files, launch::catalog_folder(files));
}

const mlperf::Ruleset& ruleset_for(std::string_view asked, std::string_view path,
                                   const catalog::Benchmark* benchmark) {
  if (!asked.empty()) return mlperf::find_ruleset(asked);
  if (const std::string round = mlperf::round_of(path); !round.empty()) {
    const std::string version = mlperf::ruleset_of_round(round);
    if (version.empty()) {
      fail(ErrorKind::usage,
           "{}: the rules of round {} are not known; known rulesets: {}. Name the one to judge by "
           "with --ruleset",
           path, round, join(mlperf::ruleset_versions(), ", "));
    }
    return mlperf::find_ruleset(version);
  }
  const std::string version = benchmark != nullptr ? mlperf::newest_ruleset(*benchmark) : "";
  if (version.empty()) {
    fail(ErrorKind::usage,
         "{}: which rules? No round (such as v4.1) is in the path; give --ruleset: {}", path,
         join(mlperf::ruleset_versions(), ", "));
  }
  return mlperf::find_ruleset(version);
}

std::string own_published_folder() { return join_path(launch::user_data_folder(), "published"); }

mlperf::ClaimBasis load_claim_basis(const std::vector<std::string>& further) {
  FileSystem& files = posix_file_system();
  const std::string folder = launch::catalog_folder(files);
  mlperf::ClaimBasis basis;
  basis.benchmarks = catalog::load_benchmarks(files, folder);
  basis.catalog = catalog::load_catalog(files, {folder});
  mlperf::add_published_chips(files, folder, basis.catalog);
  basis.published = catalog::load_published(files, {join_path(folder, "published")});
  const auto take = [&](const std::vector<catalog::PublishedResult>& rows, const std::string& of) {
    int64_t left_out = 0;
    for (const catalog::PublishedResult& row : rows) {
      if (row.compliant) basis.published.push_back(row);
      else ++left_out;
    }
    if (left_out > 0) {
      print_message(
          fmt::format("{}: {} of {} rows are left out: they do not say that they comply; import "
                      "those results again, or write yes into their column compliant\n",
                      of, left_out, rows.size()));
    }
  };
  const std::string own = own_published_folder();
  take(catalog::load_published(files, {own}), own);
  for (const std::string& path : further) {
    take(catalog::parse_published(read_file(files, path), path), path);
  }
  return basis;
}

std::vector<FoundResult> find_mlperf_results(const std::vector<std::string>& paths,
                                             const std::string& ruleset) {
  FileSystem& files = posix_file_system();
  const auto known = mlperf_benchmarks();
  std::vector<FoundResult> results;
  for (const std::string& path : paths) {
    auto found = mlperf::find_results(files, path);
    if (found.empty()) fail(ErrorKind::not_found, "no result_N.txt at or below '{}'", path);
    for (mlperf::ResultFolder& folder : found) results.push_back({std::move(folder), nullptr, {}});
  }
  telemetry::ProgressBar progress("score", "results");
  int64_t done = 0;
  for (FoundResult& result : results) {
    throw_if_interrupted();
    const mlperf::ResultFolder& folder = result.folder;
    const auto* benchmark = catalog::find_benchmark(known, folder.benchmark);
    result.ruleset = &ruleset_for(ruleset, folder.path, benchmark);
    result.score = mlperf::score_result(files, folder, *result.ruleset, known);
    mlperf::note_ruleset(!ruleset.empty(), result.score);
    progress.update(++done, static_cast<int64_t>(results.size()));
  }
  progress.finish();
  return results;
}

std::vector<mlperf::Score> mlperf_scores(const std::vector<std::string>& paths,
                                         const std::string& ruleset) {
  std::vector<mlperf::Score> scores;
  for (FoundResult& result : find_mlperf_results(paths, ruleset)) {
    scores.push_back(std::move(result.score));
  }
  return scores;
}

std::string format_check(const mlperf::ComplianceCheck& check,
                         const std::vector<std::string>& rulesets) {
  const std::string text = mlperf::format_findings(check.findings);
  const int64_t errors = errors_in(check);
  return text + fmt::format("{} by ruleset {}: {} logs in {} results, {} errors, {} warnings\n",
                            errors == 0 ? "compliant" : "not compliant", join(rulesets, ", "),
                            check.logs, check.results, errors,
                            static_cast<int64_t>(check.findings.size()) - errors);
}

Json check_json(const mlperf::ComplianceCheck& check, const std::vector<std::string>& rulesets) {
  Json findings = Json::array();
  for (const mlperf::Finding& finding : check.findings) {
    findings.push_back(mlperf::to_json(finding));
  }
  return {{"compliant", mlperf::compliant(check.findings)},
          {"rulesets", rulesets},
          {"logs", check.logs},
          {"results", check.results},
          {"findings", std::move(findings)}};
}

std::string format_scores(const std::vector<mlperf::Score>& scores) {
  std::vector<std::vector<std::string>> rows = {
      {"result", "rules", "runs", "minutes", "raw", "scale", "samples", "batch", "reference"}};
  std::string notes;
  for (const mlperf::Score& score : scores) {
    rows.push_back({score.path, score.ruleset,
                    fmt::format("{} of {}", score.converged_runs,
                                std::max<int64_t>(score.required_runs,
                                                  static_cast<int64_t>(score.runs.size()))),
                    cell(score.minutes, 3), cell(score.raw_minutes, 3),
                    fmt::format("{:.4f}", score.scale), cell(score.samples_to_target, 0),
                    cell(score.global_batch_samples, 0), reference_cell(score.reference)});
    for (const std::string& note : score.notes) {
      notes += fmt::format("{}: {}\n", score.path, note);
    }
    if (!score.reference.known) {
      notes += fmt::format("{}: not tested against the reference: {}\n", score.path,
                           score.reference.basis);
    }
  }
  return format_table(rows) + notes;
}

std::string format_runs(const std::vector<mlperf::Score>& scores) {
  std::vector<std::vector<std::string>> rows = {{"run", "minutes", "samples", "step, s", "from",
                                                 "evaluation, s", "start-up, s",
                                                 "initialisation, s", "counted"}};
  for (const mlperf::Score& score : scores) {
    for (const mlperf::ScoredRun& run : score.runs) {
      const auto& line = run.timeline;
      rows.push_back(
          {run.file, run.converged ? fmt::format("{:.4f}", run.minutes) : "-",
           run.converged ? fmt::format("{:.0f}", run.samples_to_target) : "-",
           line && line->step_seconds > 0 ? fmt::format("{:.4f}", line->step_seconds) : "-",
           !line               ? "-"
           : line->steps_timed ? "logged steps"
                               : "stretches",
           line && line->evaluations_timed ? fmt::format("{:.1f}", line->evaluation_seconds) : "-",
           line ? fmt::format("{:.1f}", line->startup_seconds) : "-",
           cell(run.run.initialisation_seconds(), 1), run.counted ? "yes" : "no"});
    }
  }
  return format_table(rows);
}

}  // namespace tutti::cli
