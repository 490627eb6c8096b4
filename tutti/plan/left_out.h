// The planner's error on unseen rows (leave-one-group-out cross-validation): whole families of
// software, chip generations or releases are held out of the fit, predicted with the constants that
// constants_for then finds, and compared. The intervals that predictions state come from these
// errors, and so does the correction by a measured row (anchor.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/plan/anchor.h"
#include "tutti/plan/fit.h"
#include "tutti/plan/validate.h"

namespace tutti::plan {

enum class LeftOutBy { family, generation, software };
// Throws usage naming the accepted values.
LeftOutBy parse_left_out(const std::string& text);

struct AnchoredSummary {
  double mean_error = 0;  // as in LeftOutSummary
  double bias = 0;
  double inside = 0;
};

struct LeftOutSummary {
  std::string name;  // of the fold
  int64_t rows = 0;
  double mean_error = 0;  // of time: mean size of predicted / measured - 1
  double bias = 0;        // mean of it, signed
  double inside = 0;      // share of rows within the stated 80% interval
  // With one other layout of the same software on the same chip generation as anchor: the mean over
  // all choices, and with the nearest of them (anchor.h).
  AnchoredSummary anchored;
  AnchoredSummary nearest;
};

struct LeftOut {
  Validation validation;                // every row of time, predicted without its fold
  std::vector<std::string> folds;       // of each row; empty: not predicted
  std::vector<LeftOutSummary> summary;  // per fold, the total last
  // Of the logarithm, for steps of products alone: 80% of all held-out rows are within what it
  // grows to by rest_ratio (interval.h).
  double interval = 0;
  double anchored_interval = 0;  // with any single anchor
  double nearest_interval = 0;   // with the nearest
  double rest_ratio = 0;
  ErrorSpread spread;
};

// The groups are fitted on options.threads threads; the results do not depend on their number. The
// interval stated for a row is the one that contains 80% of the rows of all other folds, with
// families weighted by the square root of their rows.
LeftOut leave_out(const std::vector<PreparedRow>& rows, LeftOutBy by, const FitOptions& options,
                  const std::function<void(int64_t, int64_t)>& progress);

// Two releases of one software, or two runs of one, on the same layout, chip and batch: the ratio
// of their times. Without the release no prediction can be better than half of it.
struct ReleaseSpread {
  int64_t pairs = 0;
  double mean = 0;  // of the absolute logarithm of the ratio
  double worst = 0;
};
ReleaseSpread release_spread(const std::vector<PreparedRow>& rows);

// Sets the intervals of `sets` for uses that they were not fitted on, and in any/any the effect of
// a measured row, by holding out families, generations and releases of `rows`.
void set_left_out_intervals(const std::vector<PreparedRow>& rows, const FitOptions& options,
                            const std::function<void(int64_t, int64_t)>& progress,
                            std::vector<Constants>& sets);

// Corrects prediction and error of every row by `anchors` (anchor.h) and the spread of `sets`.
void correct_rows(const std::vector<PreparedRow>& rows, const std::vector<Constants>& sets,
                  const std::vector<MeasuredError>& anchors, Validation& validation);

// The rows of time that can be predicted.
std::vector<const PreparedRow*> rows_of_time(const std::vector<PreparedRow>& rows);

Json to_json(const ReleaseSpread& spread);
std::string format_releases(const ReleaseSpread& spread);
Json to_json(const LeftOut& left_out);
std::string format_left_out(const LeftOut& left_out);

}  // namespace tutti::plan
