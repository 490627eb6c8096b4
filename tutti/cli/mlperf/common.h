// What the mlperf commands share: the catalog's benchmarks, rulesets, scores of folders.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/catalog/benchmarks.h"
#include "tutti/cli/program/commands.h"
#include "tutti/mlperf/claim.h"
#include "tutti/mlperf/compliance.h"
#include "tutti/mlperf/ruleset.h"
#include "tutti/mlperf/score.h"

namespace tutti::cli {

std::vector<catalog::Benchmark> mlperf_benchmarks();

// As asked, or that of the round in the path, or, without any round, the newest of `benchmark`. The
// ruleset is one of find_ruleset()'s, which live as long as the program. Throws usage for a round
// without rules, and when nothing is left.
const mlperf::Ruleset& ruleset_for(std::string_view asked, std::string_view path,
                                   const catalog::Benchmark* benchmark);

// The catalog with the chips of published results, and those results: its own, and of the user's
// data folder and the further files the rows that say that they comply. Rows that do not are left
// out, with a message.
mlperf::ClaimBasis load_claim_basis(const std::vector<std::string>& further);
std::string own_published_folder();

// A result as it was found, and its score by `ruleset`.
struct FoundResult {
  mlperf::ResultFolder folder;
  const mlperf::Ruleset* ruleset = nullptr;
  mlperf::Score score;
};

// All results at or below the paths, with a progress bar. Throws not_found for a path without any.
std::vector<FoundResult> find_mlperf_results(const std::vector<std::string>& paths,
                                             const std::string& ruleset);
std::vector<mlperf::Score> mlperf_scores(const std::vector<std::string>& paths,
                                         const std::string& ruleset);

std::string format_check(const mlperf::ComplianceCheck& check,
                         const std::vector<std::string>& rulesets);
Json check_json(const mlperf::ComplianceCheck& check, const std::vector<std::string>& rulesets);
std::string format_scores(const std::vector<mlperf::Score>& scores);  // a table and its notes
std::string format_runs(const std::vector<mlperf::Score>& scores);    // a table of their runs

// Exit codes besides those of all commands (base/error.h): scripts distinguish verdicts by them
// (docs/mlperf.md).
inline constexpr int kNoVerdict = 3;   // validate: no verdict; claim: never seen
inline constexpr int kTooFast = 4;     // check, score: faster convergence than the reference allows
inline constexpr int kImpossible = 5;  // claim: above the peak of the chip

void add_mlperf_run(CLI::App& group, Action& action);
void add_mlperf_claim(CLI::App& group, Action& action);  // claim and import
void add_mlperf_compare(CLI::App& group, Action& action);
void add_mlperf_validate(CLI::App& group, Action& action);

}  // namespace tutti::cli
