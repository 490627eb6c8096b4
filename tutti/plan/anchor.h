// Anchors: one or a few of the user's measured steps correct predictions for other runs of the same
// software.
//
// The logarithm of measured over predicted step time of a row whose software was not fitted is
// modelled as a sum of three independent parts: one common to all rows of the software, one that
// rows share in proportion to the nearness of their layouts, and one of its own. Their standard
// deviations are estimated from families held out of the fit (left_out.h) and stored in the set
// any/any. Measured rows determine the shared parts of another row partly: the correction is the
// conditional mean and variance of a Gaussian (kriging, Matheron 1963), so that few, distant or
// inconsistent rows correct less than their full error.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tutti/plan/constants.h"
#include "tutti/plan/predict.h"

namespace tutti::plan {

class PreparedRow;

// The properties that decide how much error two rows share.
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

// exp(-d / 3) of the distance d: half the number of doublings between the sizes, 2 for another chip
// generation, and 1 for each other difference. 1: the same layout.
double nearness(const RowKind& a, const RowKind& b);

struct MeasuredError {
  RowKind kind;
  double log_error = 0;  // of measured over predicted step time
  std::string run;       // rows of one run count as one measurement; empty: a run of its own
};

struct Correction {
  int64_t anchors = 0;
  double log_factor = 0;      // added to the logarithm of the predicted time
  double interval_share = 1;  // remaining share of the interval without anchors
};

// `spread` holds the standard deviations; if all are 0 nothing is corrected.
Correction correction_for(const ErrorSpread& spread, const std::vector<MeasuredError>& anchors,
                          const RowKind& wanted);

// The spread whose pairs of rows agree with those of `groups`, each of which holds the rows of one
// family.
ErrorSpread estimate_spread(const std::vector<std::vector<MeasuredError>>& groups);

// Errors of rows of time, by constants_for of each row's chip and `software`, or else the row's
// own. Omits rows that cannot be predicted; throws usage with a reason if none is left, or if one
// is further than kMostMeasured times from its prediction: no constants are so wrong, but a unit
// may be.
inline constexpr double kMostMeasured = 5;
std::vector<MeasuredError> measured_errors(const std::vector<PreparedRow>& rows,
                                           const std::vector<Constants>& sets,
                                           const std::optional<std::string>& software);

// The spread of the set any/any of `sets`; zeros: none.
ErrorSpread spread_of(const std::vector<Constants>& sets);

// 80% of measured over predicted times are within plus or minus this value, in logarithms and for
// steps of products alone (interval.h): the interval of `constants`, or with anchors the narrower
// one from held-out rows in `sets`.
double interval_with(const std::vector<Constants>& sets, const Constants& constants,
                     const Correction& correction);

// `step` with every part scaled by exp(log_factor), and rates scaled down accordingly.
StepPrediction corrected(StepPrediction step, const Correction& correction);

}  // namespace tutti::plan
