#include "tutti/mlperf/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/mlperf/compliance.h"

namespace tutti::mlperf {
namespace {

// It is never guessed.
std::string round_to_import(const Score& score, bool ruleset_asked) {
  if (score.round.empty() && !ruleset_asked) {
    fail(
        ErrorKind::usage,
        "{}: of which round? None (such as v6.0) is in the path; give --ruleset, or put the result "
        "below a folder named after its round",
        score.path);
  }
  if (!score.round.empty() && ruleset_of_round(score.round) != score.ruleset) {
    fail(ErrorKind::usage,
         "{}: a result of round {} is not imported by the rules {}; leave --ruleset out",
         score.path, score.round, score.ruleset);
  }
  return score.round.empty() ? "v" + score.ruleset.substr(0, score.ruleset.rfind('.'))
                             : score.round;
}

catalog::PublishedResult row_of(const Score& score, const std::string& round) {
  const auto accelerators = score.system.accelerators();
  if (!accelerators || score.system.accelerator.empty()) {
    fail(ErrorKind::corrupt,
         "{}: no system description with number_of_nodes, accelerators_per_node and "
         "accelerator_model_name next to the result",
         score.path);
  }
  catalog::PublishedResult result;
  result.round = round;
  result.benchmark = score.benchmark;
  result.submitter = score.system.submitter;
  result.system = score.system.system_name;
  result.accelerator = score.system.accelerator;
  result.accelerators = *accelerators;
  result.global_batch_samples = static_cast<int64_t>(score.global_batch_samples.value_or(0));
  result.minutes = *score.minutes;
  result.raw_minutes = *score.raw_minutes;
  result.samples_to_target = *score.samples_to_target;
  result.compliant = true;
  result.source = score.path;
  return result;
}

// "rcp.too_fast: 100 samples to target ... (and 2 more errors)"
std::string first_error(const std::vector<Finding>& findings) {
  const auto error = std::find_if(findings.begin(), findings.end(),
                                  [](const Finding& finding) { return !finding.warning; });
  const auto errors = std::count_if(findings.begin(), findings.end(),
                                    [](const Finding& finding) { return !finding.warning; });
  return fmt::format(
      "it does not comply: {}: {}{}", error->rule, error->message,
      errors > 1 ? fmt::format(" (and {} more: 'tutti mlperf check')", errors - 1) : "");
}

}  // namespace

ImportedResult import_result(FileSystem& files, const ResultFolder& folder, const Ruleset& ruleset,
                             bool ruleset_asked, const Score& score) {
  ImportedResult out;
  const std::string round = round_to_import(score, ruleset_asked);
  const std::vector<Finding> findings = findings_of(files, folder, ruleset, score);
  if (!compliant(findings)) {
    out.reason = first_error(findings);
    out.too_fast = only_too_fast(findings);
  } else if (!score.minutes || !score.samples_to_target) {
    out.reason = "it has no score";
  } else if (!is_closed(score)) {
    out.reason = "it is of the open division, where model and target are free";
  } else {
    out.row = row_of(score, round);
  }
  return out;
}

}  // namespace tutti::mlperf
