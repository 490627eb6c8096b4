// Validates the planner against published measurements: predicts every row and reports its error;
// rows that cannot be predicted are listed with the reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/plan/measurement.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

// A row prepared for repeated predictions with different constants, by any number of threads:
// everything that does not depend on them is computed once.
class PreparedRow {
 public:
  PreparedRow(Measurement measurement, const catalog::Catalog& catalog);

  const Measurement& measurement() const { return measurement_; }
  bool predictable() const { return measurement_.unpredictable.empty(); }
  bool is_memory() const;
  bool is_rate() const;  // of the metric: decreases as times grow
  // The metric's value; for unpublished sizes the fastest choice that fits. Software settings that
  // the row's source states replace those of `constants`.
  double predict(const Constants& constants) const;
  // Of the predicted step (predict.h).
  double products_share(const Constants& constants) const;
  // The group that shares constants: chip generation and software.
  std::string group() const;
  // Equal for all metrics of one run.
  std::string layout() const;
  void reject(std::string reason);  // marks the row as unpredictable
  const catalog::System& system() const { return *system_; }

 private:
  struct Candidate {
    spec::Recipe recipe;
    spec::Program program;
  };
  double predict_memory_metric(const Constants& constants) const;
  Constants stated_constants(const Constants& chosen) const;
  struct Fastest {
    const Candidate* candidate = nullptr;
    StepPrediction step;
  };
  Fastest fastest(const Constants& constants) const;

  Measurement measurement_;
  const catalog::System* system_ = nullptr;
  std::vector<Candidate> candidates_;
};

struct ValidatedRow {
  std::string source;
  std::string model;
  std::string metric;
  int line = 0;
  double measured = 0;
  double predicted = 0;
  double error = 0;      // of time or memory: predicted / measured - 1 (rates: the inverse ratio)
  bool fitted = false;   // whether constants were fitted on this row
  std::string skipped;   // reason, if it could not be predicted
  std::string inferred;  // values that a rule filled in (Measurement::inferred)
};

struct SourceSummary {
  std::string source;
  int64_t rows = 0;
  double mape = 0;    // mean absolute error
  double median = 0;  // of absolute errors
  double worst = 0;   // signed, largest in size
};

struct Validation {
  std::vector<ValidatedRow> rows;
  std::vector<SourceSummary> summary;  // per source, rows not fitted; the last is the total
};

// Which half a row belongs to: rows of one layout (all its metrics) stay together; of the layouts
// of a source in order, every other one is fitted. Fixed, never tuned.
std::vector<bool> fitted_half(const std::vector<PreparedRow>& rows);

ValidatedRow validate_row(const PreparedRow& row, const Constants& constants, bool fitted);

// Per source and kind of metric, of the rows that are predicted and not fitted; all memory and all
// time last.
std::vector<SourceSummary> summarize(const std::vector<ValidatedRow>& rows);

// Rejects FLOP rates and MFU whose FLOPs per token, computed with the same run's tokens per second,
// do not match the model in the convention of their source.
void reject_other_conventions(std::vector<PreparedRow>& rows);

Validation validate_rows(const std::vector<PreparedRow>& rows, const std::vector<Constants>& sets,
                         const std::vector<bool>& fitted);

// Sets each set's error to its mean absolute error of time on the rows not fitted; sets with fewer
// than four such rows keep theirs.
void set_held_out_errors(const std::vector<PreparedRow>& rows, const Validation& validation,
                         std::vector<Constants>& sets);

Json to_json(const Validation& validation);
std::string format_validation(const Validation& validation, bool every_row);

}  // namespace tutti::plan
