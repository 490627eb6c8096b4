// How far off the planner is on what it has never seen: whole families of software, chip
// generations or releases are left out of the fit, predicted by what constants_for then finds, and
// compared. From these errors come the intervals that predictions state, and the correction by a
// measured row (anchor.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/plan/anchor.h"
#include "tutti/plan/fit.h"
#include "tutti/plan/validate.h"

namespace tutti::plan {

enum class LeftOutBy { family, generation, software };
// Throws usage naming what is accepted.
LeftOutBy parse_left_out(const std::string& text);

struct AnchoredSummary {
  double mean_error = 0;  // as of LeftOutSummary
  double bias = 0;
  double inside = 0;
};

struct LeftOutSummary {
  std::string name;  // of the fold
  int64_t rows = 0;
  double mean_error = 0;  // of time: mean size of predicted / measured - 1
  double bias = 0;        // mean of it, signed
  double inside = 0;      // share of rows within the 80% interval that was stated
  // With one other layout of the same software on the same chip generation as anchor: the mean over
  // all choices, and with the nearest of them (anchor.h).
  AnchoredSummary anchored;
  AnchoredSummary nearest;
};

struct LeftOut {
  Validation validation;                // every row of time, predicted without its fold
  std::vector<std::string> folds;       // of each row; empty: not predicted
  std::vector<LeftOutSummary> summary;  // per fold, all of them last
  // Of the logarithm, where a step is products alone: 80% of all rows left out are within what they
  // grow to by rest_ratio (interval.h).
  double interval = 0;
  double anchored_interval = 0;  // with one anchor, any
  double nearest_interval = 0;   // with the nearest
  double rest_ratio = 0;
  ErrorSpread spread;
};

// The groups are fitted on options.threads threads: the results are the same whatever their number.
// The interval stated for a row is the one that holds 80% of the rows of all other folds, families
// counting by the square root of their rows.
LeftOut leave_out(const std::vector<PreparedRow>& rows, LeftOutBy by, const FitOptions& options,
                  const std::function<void(int64_t, int64_t)>& progress);

// Two releases of one software, or two runs of one, on the same layout, chip and batch: the ratio
// of their times. Nobody who is not told the release can be nearer than half of it.
struct ReleaseSpread {
  int64_t pairs = 0;
  double mean = 0;  // of the size of the logarithm of the ratio
  double worst = 0;
};
ReleaseSpread release_spread(const std::vector<PreparedRow>& rows);

// Sets what `sets` state of themselves where they are used for what they were not fitted on, and of
// any/any what a measured row changes, from leaving out families, generations and releases of
// `rows`.
void set_left_out_intervals(const std::vector<PreparedRow>& rows, const FitOptions& options,
                            const std::function<void(int64_t, int64_t)>& progress,
                            std::vector<Constants>& sets);

// Sets predicted and error of every row by `anchors` (anchor.h) and the spread of `sets`.
void correct_rows(const std::vector<PreparedRow>& rows, const std::vector<Constants>& sets,
                  const std::vector<MeasuredError>& anchors, Validation& validation);

// Those that can be predicted.
std::vector<const PreparedRow*> rows_of_time(const std::vector<PreparedRow>& rows);

Json to_json(const ReleaseSpread& spread);
std::string format_releases(const ReleaseSpread& spread);
Json to_json(const LeftOut& left_out);
std::string format_left_out(const LeftOut& left_out);

}  // namespace tutti::plan
