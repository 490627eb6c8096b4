// Compliance of logs, results and submission trees.
//
// A log is checked by its rules (check_log.h). A result, further: the number of runs; at most one
// run that fails, which is then the dropped one and its findings are warnings; a seed in each run,
// never the same from the same place twice; convergence against the reference (closed division);
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

// What one result folder adds to the findings of its own logs.
std::vector<Finding> check_result(FileSystem& files, const ResultFolder& folder,
                                  const Ruleset& ruleset, const Score& score);

}  // namespace tutti::mlperf
