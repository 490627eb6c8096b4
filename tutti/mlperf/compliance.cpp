#include "tutti/mlperf/compliance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

void add(std::vector<Finding>& to, std::vector<Finding> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

void check_count(const ResultFolder& folder, const Score& score, Findings& findings) {
  const auto runs = static_cast<int64_t>(folder.logs.size());
  int required = required_runs(score.benchmark);
  if (required == 0) required = required_runs(folder.benchmark);
  if (required > 0 && runs != required) {
    findings.error(0, "runs.count", fmt::format("{} result files", runs),
                   fmt::format("a result of {} has exactly {} runs: result_0.txt to result_{}.txt",
                               score.benchmark.empty() ? folder.benchmark : score.benchmark,
                               required, required - 1));
  }
  // Published results start at 0 or at 1.
  for (size_t i = 1; i < folder.logs.size(); ++i) {
    const int expected = result_number(folder.logs[i - 1]) + 1;
    if (result_number(folder.logs[i]) == expected) continue;
    findings.warning(0, "layout.numbering",
                     fmt::format("no result_{}.txt among {} files", expected, runs),
                     "number the files without gaps");
    break;
  }
}

void check_seeds(const Score& score, std::vector<Finding>& all) {
  std::map<std::pair<std::string, int64_t>, std::string> used;
  for (const ScoredRun& run : score.runs) {
    Findings findings(run.file);
    if (run.run.seeds.empty()) {
      findings.error(0, "seed.missing", "no record of seed",
                     "log the seed of the run once, as an integer");
    }
    for (const Seed& seed : run.run.seeds) {
      if (!seed.value) {
        findings.error(seed.line, "seed.value", "the seed is not an integer",
                       "log the seed as an integer");
        continue;
      }
      if (seed.location.empty()) {
        findings.error(seed.line, "seed.place", "the seed's metadata lack file or lineno",
                       "log the seed with metadata file and lineno, as every record");
        continue;
      }
      const auto [earlier, fresh] = used.try_emplace({seed.location, *seed.value}, run.file);
      if (!fresh) {
        findings.error(seed.line, "seed.reused",
                       fmt::format("seed {} from {} is also that of {}", *seed.value, seed.location,
                                   earlier->second),
                       "every run needs its own seed");
      }
    }
    if (run.run.seeds.size() > 1) {
      findings.warning(run.run.seeds[1].line, "seed.many",
                       fmt::format("{} seeds in one run", run.run.seeds.size()),
                       "log one seed per run");
    }
    add(all, findings.take());
  }
}

void check_mixed(const Score& score, Findings& findings) {
  const auto differ = [&](auto&& of) {
    return std::any_of(score.runs.begin(), score.runs.end(),
                       [&](const ScoredRun& run) { return of(run) != of(score.runs.front()); });
  };
  const auto report = [&](const char* what) {
    findings.error(0, "runs.mixed", fmt::format("runs have different {}", what),
                   "a result consists of runs of one configuration");
  };
  if (differ([](const ScoredRun& r) { return r.run.benchmark; })) report("benchmarks");
  if (differ([](const ScoredRun& r) { return r.run.global_batch_samples; })) {
    report("global batch sizes");
  }
  if (differ([](const ScoredRun& r) { return r.run.division; })) report("divisions");
}

void check_reference(const Score& score, Findings& findings) {
  const ReferenceTest& reference = score.reference;
  if (!reference.known) {
    // Without converged runs the logs have findings of their own.
    if (score.samples_to_target && score.global_batch_samples) {
      findings.error(0, "rcp.missing", reference.basis,
                     "submit reference points for this batch size");
    }
    return;
  }
  if (reference.below_smallest) {
    findings.warning(
        0, "rcp.below_smallest",
        fmt::format("batch {} is smaller than every reference point: tested against the "
                    "{}",
                    *score.global_batch_samples, reference.basis),
        "nothing says how a batch this small converges; submit a reference point");
  }
  if (reference.pass) return;
  findings.error(
      0, "rcp.too_fast",
      fmt::format("{:.1f} samples to target on average, the reference ({}) allows {:.1f}",
                  reference.mean_samples, reference.basis, reference.least_samples),
      "the runs converge faster than the reference can explain: check that model, data "
      "order and evaluation are those of the reference");
}

// The log and the system description both say where the system can be had.
void check_availability(const Score& score, Findings& findings) {
  const std::string& described = score.system.availability;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSame = {{
      {"onprem", "Available on-premise"},
      {"cloud", "Available cloud"},
      {"preview", "Preview"},
      {"research", "Research, Development, or Internal (RDI)"},
  }};
  for (const ScoredRun& run : score.runs) {
    const auto same = std::find_if(kSame.begin(), kSame.end(), [&](const auto& pair) {
      return pair.first == run.run.availability;
    });
    // Descriptions of other rounds name other states, such as "onprem" itself.
    const bool known = std::any_of(kSame.begin(), kSame.end(),
                                   [&](const auto& pair) { return pair.second == described; });
    if (same == kSame.end() || !known || same->second == described) continue;
    findings.warning(0, "system.availability",
                     fmt::format("the logs say submission_status {}, the system description '{}'",
                                 run.run.availability, described),
                     "let both say the same");
    return;
  }
}

void check_scaling(const Score& score, Findings& findings) {
  if (score.scaling_problem.empty()) return;
  findings.error(0, "rcp.scaling", "scaling.json: " + score.scaling_problem,
                 "write {\"scaling_factor\": FACTOR} as the review found it, or remove the file");
}

void check_layout(const ResultFolder& folder, const Score& score, Findings& findings) {
  for (const std::string& name : folder.strangers) {
    findings.warning(0, "layout.stranger", fmt::format("file '{}' is not a result", name),
                     "only result_N.txt, scaling.json and power/ belong here");
  }
  if (required_runs(folder.benchmark) > 0 && !score.benchmark.empty() &&
      folder.benchmark != score.benchmark) {
    findings.error(0, "layout.benchmark",
                   fmt::format("the logs are of {}, the folder is named {}", score.benchmark,
                               folder.benchmark),
                   "name the folder as submission_benchmark");
  }
  if (!folder.system_wanted.empty() && folder.system_file.empty()) {
    findings.error(0, "layout.system", fmt::format("no '{}'", folder.system_wanted),
                   "every folder in results/ needs systems/<same name>.json");
  } else if (folder.system_file.empty()) {
    findings.warning(0, "layout.system", "no system description found: not checked",
                     "check the whole submission, or put system.json next to the benchmark folder");
  }
}

}  // namespace

bool is_closed(const Score& score) {
  if (!score.system.division.empty()) return score.system.division == "closed";
  return std::any_of(score.runs.begin(), score.runs.end(),
                     [](const ScoredRun& run) { return run.run.division == "closed"; });
}

bool only_too_fast(const std::vector<Finding>& findings) {
  return !compliant(findings) &&
         std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
           return finding.warning || finding.rule == "rcp.too_fast";
         });
}

std::vector<Finding> check_result(FileSystem& files, const ResultFolder& folder,
                                  const Ruleset& ruleset, const Score& score) {
  std::vector<Finding> all;
  Findings findings(folder.path);
  check_layout(folder, score, findings);
  check_count(folder, score, findings);
  check_mixed(score, findings);
  check_availability(score, findings);
  check_scaling(score, findings);
  if (is_closed(score)) {
    check_seeds(score, all);
    check_reference(score, findings);
  }
  add(all, findings.take());
  // Those of a submission tree are checked once, all of them, by check_path.
  if (!folder.system_file.empty() && folder.system_wanted.empty()) {
    add(all, check_system(files, folder.system_file, ruleset).findings);
  }
  return all;
}

namespace {

// The findings of a result without those of a description in systems/, which check_path checks once
// for all results.
std::vector<Finding> findings_of_folder(FileSystem& files, const ResultFolder& folder,
                                        const Ruleset& ruleset, const Score& score) {
  std::vector<Finding> all;
  const auto failed = std::count_if(score.runs.begin(), score.runs.end(),
                                    [](const ScoredRun& run) { return !run.compliant; });
  // A single run has nothing it could be dropped from.
  const bool one_dropped = failed == 1 && score.runs.size() >= 3;
  for (const ScoredRun& run : score.runs) {
    std::vector<Finding> findings = run.findings;
    if (one_dropped && !run.compliant) {
      for (Finding& finding : findings) finding.warning = true;
      Findings note(run.file);
      note.warning(0, "runs.one_dropped", "this run does not comply",
                   "one such run is accepted: it is the dropped slowest of the result");
      add(findings, note.take());
    }
    add(all, std::move(findings));
  }
  if (failed > 1) {
    Findings many(folder.path);
    many.error(0, "runs.failed",
               fmt::format("{} of {} runs do not comply", failed, score.runs.size()),
               "a result may have one such run");
    add(all, many.take());
  }
  add(all, check_result(files, folder, ruleset, score));
  return all;
}

}  // namespace

std::vector<Finding> findings_of(FileSystem& files, const ResultFolder& folder,
                                 const Ruleset& ruleset, const Score& score) {
  std::vector<Finding> all = findings_of_folder(files, folder, ruleset, score);
  if (!folder.system_file.empty() && !folder.system_wanted.empty()) {
    add(all, check_system(files, folder.system_file, ruleset).findings);
  }
  return all;
}

void check_path(FileSystem& files, const std::string& path, const Ruleset& ruleset,
                const std::vector<catalog::Benchmark>& benchmarks, ComplianceCheck& check) {
  const RulesFor same = [&](const std::string&) -> const Ruleset& { return ruleset; };
  check_path(files, path, same, benchmarks, check);
}

void check_path(FileSystem& files, const std::string& path, const RulesFor& rules_for,
                const std::vector<catalog::Benchmark>& benchmarks, ComplianceCheck& check) {
  if (!files.exists(path)) fail(ErrorKind::not_found, "no file or folder '{}'", path);
  if (!files.is_directory(path)) {
    ++check.logs;
    add(check.findings, check_log(files, path, rules_for(path)).findings);
    return;
  }
  const auto folders = find_results(files, path);
  if (folders.empty()) {
    fail(ErrorKind::not_found,
         "no result_N.txt at or below '{}'; give a log, a folder of runs or "
         "a submission",
         path);
  }
  for (const ResultFolder& folder : folders) {
    const Ruleset& ruleset = rules_for(folder.path);
    const Score score = score_result(files, folder, ruleset, benchmarks);
    ++check.results;
    check.logs += static_cast<int64_t>(score.runs.size());
    add(check.findings, findings_of_folder(files, folder, ruleset, score));
  }
  for (const std::string& system : find_system_files(files, path)) {
    add(check.findings, check_system(files, system, rules_for(system)).findings);
  }
}

}  // namespace tutti::mlperf
