#include "tutti/plan/anchor.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/real.h"
#include "tutti/plan/validate.h"

namespace tutti::plan {
namespace {

double shared_variance(const ErrorSpread& spread, const RowKind& a, const RowKind& b) {
  return spread.family * spread.family + (a == b ? spread.alike * spread.alike : 0);
}

// Solves a x = b for a symmetric positive definite matrix of few rows (Cholesky), in place.
std::vector<double> solve_positive(std::vector<double> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t c = 0; c < n; ++c) {
    for (size_t k = 0; k < c; ++k) a[c * n + c] -= a[c * n + k] * a[c * n + k];
    a[c * n + c] = std::sqrt(a[c * n + c]);
    for (size_t r = c + 1; r < n; ++r) {
      for (size_t k = 0; k < c; ++k) a[r * n + c] -= a[r * n + k] * a[c * n + k];
      a[r * n + c] /= a[c * n + c];
    }
  }
  for (size_t r = 0; r < n; ++r) {
    for (size_t k = 0; k < r; ++k) b[r] -= a[r * n + k] * b[k];
    b[r] /= a[r * n + r];
  }
  for (size_t r = n; r-- > 0;) {
    for (size_t k = r + 1; k < n; ++k) b[r] -= a[k * n + r] * b[k];
    b[r] /= a[r * n + r];
  }
  return b;
}

}  // namespace

Correction correction_for(const ErrorSpread& spread, const std::vector<MeasuredError>& anchors,
                          const RowKind& wanted) {
  Correction out;
  out.anchors = static_cast<int64_t>(anchors.size());
  const double own = spread.own * spread.own;
  const double total = shared_variance(spread, wanted, wanted) + own;
  if (anchors.empty() || own <= 0) return out;
  const size_t n = anchors.size();
  std::vector<double> covariance(n * n);
  std::vector<double> with_wanted;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      covariance[i * n + j] =
          shared_variance(spread, anchors[i].kind, anchors[j].kind) + (i == j ? own : 0);
    }
    with_wanted.push_back(shared_variance(spread, anchors[i].kind, wanted));
  }
  const std::vector<double> weight = solve_positive(covariance, with_wanted);
  double known = 0;
  for (size_t i = 0; i < n; ++i) {
    out.log_factor += weight[i] * anchors[i].log_error;
    known += weight[i] * with_wanted[i];
  }
  out.interval_share = std::sqrt(std::max(own, total - known) / total);
  return out;
}

ErrorSpread estimate_spread(const std::vector<std::vector<MeasuredError>>& groups) {
  // Means of products over pairs and rows, each family with the square root of its rows.
  double apart = 0, alike = 0, own = 0;
  double apart_weight = 0, alike_weight = 0, own_weight = 0;
  for (const std::vector<MeasuredError>& group : groups) {
    double sums[3] = {};
    double counts[3] = {};
    for (size_t i = 0; i < group.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        const size_t which = i == j ? 2 : group[i].kind == group[j].kind ? 1 : 0;
        sums[which] += group[i].log_error * group[j].log_error;
        ++counts[which];
      }
    }
    const double weight = std::sqrt(real(static_cast<int64_t>(group.size())));
    const auto add = [&](size_t which, double& sum, double& all) {
      if (counts[which] == 0) return;
      sum += weight * sums[which] / counts[which];
      all += weight;
    };
    add(0, apart, apart_weight);
    add(1, alike, alike_weight);
    add(2, own, own_weight);
  }
  const auto mean = [](double sum, double weight) { return weight > 0 ? sum / weight : 0; };
  const double total = mean(own, own_weight);
  const double near = std::clamp(mean(alike, alike_weight), 0.0, total);
  // Where no family has rows of different kinds, all of what they share may be of the kind.
  const double far = std::clamp(mean(apart, apart_weight), 0.0, near);
  return {std::sqrt(far), std::sqrt(near - far), std::sqrt(total - near)};
}

std::vector<MeasuredError> measured_errors(const std::vector<PreparedRow>& rows,
                                           const std::vector<Constants>& sets,
                                           const std::optional<std::string>& software) {
  std::vector<MeasuredError> out;
  std::string reason = "no row has a step time";
  for (const PreparedRow& row : rows) {
    if (!row.predictable()) {
      reason = row.measurement().unpredictable;
      continue;
    }
    if (row.is_memory()) continue;
    const Measurement& measured = row.measurement();
    const Constants constants =
        constants_for(sets, row.system().chip, software.value_or(measured.software));
    const ValidatedRow validated = validate_row(row, constants, false);
    out.push_back(
        {{row.system().chip.generation, measured.recipe.precision}, -std::log1p(validated.error)});
  }
  if (out.empty()) fail(ErrorKind::usage, "--anchor: no row can be predicted: {}", reason);
  return out;
}

namespace {

const Constants* pooled_set(const std::vector<Constants>& sets) {
  const auto found = std::find_if(sets.begin(), sets.end(), [](const Constants& set) {
    return set.software == kAny && set.chip_generation == kAny;
  });
  return found == sets.end() ? nullptr : &*found;
}

}  // namespace

ErrorSpread spread_of(const std::vector<Constants>& sets) {
  const Constants* pooled = pooled_set(sets);
  return pooled == nullptr ? ErrorSpread{} : pooled->spread;
}

double interval_with(const std::vector<Constants>& sets, const Constants& constants,
                     const Correction& correction) {
  const Constants* pooled = pooled_set(sets);
  if (correction.anchors == 0 || pooled == nullptr || pooled->anchored_interval <= 0) {
    return constants.interval;
  }
  // Of one anchor of the same kind that interval was measured; others leave more or less.
  const double one = correction_for(pooled->spread, {MeasuredError{}}, RowKind{}).interval_share;
  return std::min(constants.interval, pooled->anchored_interval * correction.interval_share / one);
}

StepPrediction corrected(StepPrediction step, const Correction& correction) {
  const double factor = std::exp(correction.log_factor);
  for (double* seconds :
       {&step.step_seconds, &step.forward_seconds, &step.forward_seconds_per_micro_batch,
        &step.gather_seconds, &step.reduce_seconds}) {
    *seconds *= factor;
  }
  for (const SplitPart& part : split_parts()) step.split.*part.seconds *= factor;
  for (double* rate : {&step.tokens_per_second_per_chip, &step.model_flops_per_second_per_chip,
                       &step.mfu_causal, &step.mfu_square, &step.hardware_utilisation}) {
    *rate /= factor;
  }
  return step;
}

}  // namespace tutti::plan
