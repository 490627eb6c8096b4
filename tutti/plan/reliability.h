// Validates the failure model and the bill against published interruptions, effective training time
// and node power, and fits the failure model.
//
// A table in the format of measurement.h with metrics of this kind:
//   failures_per_1000_node_days        of a cluster
//   mttf_hours, mtti_hours_unexpected  of a job on so many GPUs, eight to a node
//   restarts                           of a job whose note says "~33 ideal days"
//   interruptions_unexpected_54d       of a job within 54 days
//   effective_training_time_min, ettr  share of the time; a "_min" is met when it is exceeded
//   node_power                         kW, or the share of the rated power if it is below 1
//
// The fit, on logarithms: per_node is the geometric mean of the clusters' rates; the remaining rate
// of measured jobs on at least 64 nodes is per_job; a job on a single node determines the number of
// nodes from which on per_job applies in full (job_nodes). The spread is the root mean square of
// the logarithms of measured over predicted: clusters by their rate, jobs by theirs. Rows whose
// note says "projected" follow from others and are not fitted on, nor are the rows of `left_out`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/base/csv.h"
#include "tutti/catalog/catalog.h"
#include "tutti/plan/failures.h"
#include "tutti/plan/validate.h"

namespace tutti::plan {

bool is_reliability_table(const CsvTable& table);

struct ReliabilityRow {
  ValidatedRow row;
  std::optional<InterruptionInterval> interval;  // 90%, in the metric's unit
  std::optional<bool> inside;  // inside the interval, or on the right side of a bound
};

// From an entry of kind failures.
FailureModel failure_model_from(const catalog::Entry& entry);
// catalog/failures/published.yaml of the last folder that has one; throws not_found without any.
FailureModel load_failure_model(FileSystem& files, const std::vector<std::string>& folders);

// Throws usage without a cluster's rate and a job's. Ignores sources that begin with `left_out`
// (empty: none).
FailureModel fit_failures(const CsvTable& table, const FailureModel& start,
                          const std::string& left_out);

std::vector<ReliabilityRow> validate_reliability(const CsvTable& table, const FailureModel& model,
                                                 const catalog::Catalog& catalog);

Json to_json(const std::vector<ReliabilityRow>& rows, const FailureModel& model);
std::string format_reliability(const std::vector<ReliabilityRow>& rows, const FailureModel& model);

}  // namespace tutti::plan
