// What the mlperf commands share: the catalog's benchmarks, rulesets, scores of folders.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/catalog/benchmarks.h"
#include "tutti/cli/commands.h"
#include "tutti/mlperf/compliance.h"
#include "tutti/mlperf/ruleset.h"
#include "tutti/mlperf/score.h"

namespace tutti::cli {

std::vector<catalog::Benchmark> mlperf_benchmarks();

// As asked, or from the path; `benchmark` narrows what is left open. The ruleset is one of
// find_ruleset()'s, which live as long as the program. Throws usage when nothing is left.
const mlperf::Ruleset& ruleset_for(std::string_view asked, std::string_view path,
                                   const catalog::Benchmark* benchmark);

// All results at or below the paths, with a progress bar. Throws not_found for a path without any.
std::vector<mlperf::Score> mlperf_scores(const std::vector<std::string>& paths,
                                         const std::string& ruleset);

std::string format_check(const mlperf::ComplianceCheck& check,
                         const std::vector<std::string>& rulesets);
Json check_json(const mlperf::ComplianceCheck& check, const std::vector<std::string>& rulesets);
std::string format_scores(const std::vector<mlperf::Score>& scores);  // a table and its notes

void add_mlperf_run(CLI::App& group, Action& action);
void add_mlperf_claim(CLI::App& group, Action& action);  // claim and import
void add_mlperf_compare(CLI::App& group, Action& action);
void add_mlperf_validate(CLI::App& group, Action& action);

}  // namespace tutti::cli
