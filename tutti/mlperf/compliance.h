// Compliance of logs, results and submission trees.
//
// A log is checked by its rules (check_log.h). A result, further: the number of runs; at most one
// run that fails, which is then the dropped one and its findings are warnings; a seed in each run,
// never the same from the same location twice; convergence against the reference (closed division);
// the system description; the names of files and folders. Rules: mlcommons/logging,
// package_checker.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/mlperf/finding.h"
#include "tutti/mlperf/ruleset.h"
#include "tutti/mlperf/score.h"

namespace tutti::mlperf {

struct ComplianceCheck {
  int64_t logs = 0;
  int64_t results = 0;  // folders of runs
  std::vector<Finding> findings;
};

// `path`: a log, or a folder at any level. Adds to `check`. Throws not_found when it does not exist
// or holds no result.
void check_path(FileSystem& files, const std::string& path, const Ruleset& ruleset,
                const std::vector<catalog::Benchmark>& benchmarks, ComplianceCheck& check);

// The same, by rules that may differ from result to result: `rules_for` gets the path of a log, of
// a result folder or of a system description at or below `path`.
using RulesFor = std::function<const Ruleset&(const std::string& path)>;
void check_path(FileSystem& files, const std::string& path, const RulesFor& rules_for,
                const std::vector<catalog::Benchmark>& benchmarks, ComplianceCheck& check);

// All findings about one result: the findings of its logs (warnings where the run is the one that
// may be dropped), check_result's, and those of its system description.
std::vector<Finding> findings_of(FileSystem& files, const ResultFolder& folder,
                                 const Ruleset& ruleset, const Score& score);

// Every error is faster convergence than the reference allows, and there is one.
bool only_too_fast(const std::vector<Finding>& findings);

// By the system description, else by the logs.
bool is_closed(const Score& score);

// What one result folder adds to the findings of its own logs.
std::vector<Finding> check_result(FileSystem& files, const ResultFolder& folder,
                                  const Ruleset& ruleset, const Score& score);

}  // namespace tutti::mlperf
