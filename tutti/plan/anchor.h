// One or a few measured steps of yours correct what is predicted for others of the same software.
//
// The logarithm of measured over predicted step time of a row of software that was not fitted is
// taken as a sum of three independent parts: one of all rows of the software, one that rows share
// the more the nearer their layouts are (nearness), and its own. Their standard deviations are
// estimated from families left out of the fit (left_out.h) and kept in the set any/any. With
// measured rows the part that they share with a row is known in part: the conditional mean and
// variance of a Gaussian (kriging, Matheron 1963), so that few, distant or scattered rows correct
// less than all they say.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tutti/plan/constants.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

class PreparedRow;

// What decides how much of its error a row shares with another.
struct RowKind {
  std::string generation;
  spec::Precision precision = spec::Precision::bf16;
  std::string chip;
  spec::RecomputeMode recompute = spec::RecomputeMode::none;
  bool experts = false;
  bool adapters = false;
  // Logarithms to base 2 of hidden width, layers, ranks, tp, pp, cp, ep, micro-batch and sequence.
  std::array<double, 9> sizes{};
  bool operator==(const RowKind&) const = default;
};
RowKind row_kind(const spec::Recipe& recipe, const catalog::Chip& chip);

// exp(-d / 3) of the distance d: half of the doublings between the sizes, 2 for another chip
// generation, and 1 for each other thing that is not the same. 1: the same layout.
double nearness(const RowKind& a, const RowKind& b);

struct MeasuredError {
  RowKind kind;
  double log_error = 0;  // of measured over predicted step time
  std::string run;       // rows of one run are no two measurements; empty: a run of its own
};

struct Correction {
  int64_t anchors = 0;
  double log_factor = 0;      // to be added to the logarithm of the predicted time
  double interval_share = 1;  // of the interval without anchors that remains
};

// `spread` has the standard deviations; where all are 0 nothing is corrected.
Correction correction_for(const ErrorSpread& spread, const std::vector<MeasuredError>& anchors,
                          const RowKind& wanted);

// The spread whose pairs of rows agree with those of `groups`, each the rows of one family.
ErrorSpread estimate_spread(const std::vector<std::vector<MeasuredError>>& groups);

// Errors of rows of time, by constants_for of each row's chip and `software`, else the row's own.
// Rows that cannot be predicted are left out; throws usage with a reason where none is left.
std::vector<MeasuredError> measured_errors(const std::vector<PreparedRow>& rows,
                                           const std::vector<Constants>& sets,
                                           const std::optional<std::string>& software);

// Of the set any/any of `sets`; zeros: none.
ErrorSpread spread_of(const std::vector<Constants>& sets);

// 80% of measured over predicted times lie within plus or minus this, of their logarithm and of
// steps of products alone (interval.h): that of `constants`, or with anchors the narrower one that
// held for rows left out and `sets` state.
double interval_with(const std::vector<Constants>& sets, const Constants& constants,
                     const Correction& correction);

// `step` takes exp(log_factor) times as long in every part, and rates fall.
StepPrediction corrected(StepPrediction step, const Correction& correction);

}  // namespace tutti::plan
