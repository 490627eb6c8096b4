#include "tutti/plan/anchor.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "tutti/base/error.h"
#include "tutti/base/real.h"
#include "tutti/plan/validate.h"

namespace tutti::plan {
namespace {

constexpr double kNearDistance = 3;
constexpr double kPerDoubling = 0.5;
constexpr double kMostShared = 0.9;  // of the variance: every row has an error of its own

double shared_variance(const ErrorSpread& spread, const RowKind& a, const RowKind& b) {
  return spread.family * spread.family + spread.alike * spread.alike * nearness(a, b);
}

// Solves a x = b for a small symmetric positive definite matrix (Cholesky), in place.
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

RowKind row_kind(const spec::Recipe& recipe, const catalog::Chip& chip) {
  const spec::Mesh& mesh = recipe.parallel;
  RowKind kind;
  kind.generation = chip.generation;
  kind.precision = recipe.precision;
  kind.chip = chip.name;
  kind.recompute = recipe.recompute.mode;
  kind.experts = recipe.model.moe.experts > 0;
  kind.adapters = recipe.lora.rank > 0;
  const int64_t sizes[] = {
      recipe.model.hidden, recipe.model.layers,  mesh.world(), mesh.tp, mesh.pp, mesh.cp, mesh.ep,
      recipe.batch.micro,  recipe.batch.sequence};
  static_assert(std::size(sizes) == std::tuple_size_v<decltype(kind.sizes)>);
  for (size_t i = 0; i < kind.sizes.size(); ++i) {
    kind.sizes[i] = std::log2(real(std::max<int64_t>(1, sizes[i])));
  }
  return kind;
}

double nearness(const RowKind& a, const RowKind& b) {
  double distance = 0;
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    distance += kPerDoubling * std::abs(a.sizes[i] - b.sizes[i]);
  }
  if (a.generation != b.generation) distance += 2;
  for (const bool same : {a.precision == b.precision, a.chip == b.chip, a.recompute == b.recompute,
                          a.experts == b.experts, a.adapters == b.adapters}) {
    if (!same) distance += 1;
  }
  return std::exp(-distance / kNearDistance);
}

Correction correction_for(const ErrorSpread& spread, const std::vector<MeasuredError>& anchors,
                          const RowKind& wanted) {
  Correction out;
  out.anchors = static_cast<int64_t>(anchors.size());
  const double own = spread.own * spread.own;
  const double total = shared_variance(spread, wanted, wanted) + own;
  if (anchors.empty() || own <= 0) return out;
  const size_t n = anchors.size();
  std::vector<double> covariance(n * n);
  std::vector<double> shared_with_wanted;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      covariance[i * n + j] =
          shared_variance(spread, anchors[i].kind, anchors[j].kind) + (i == j ? own : 0);
    }
    shared_with_wanted.push_back(shared_variance(spread, anchors[i].kind, wanted));
  }
  const std::vector<double> weight = solve_positive(covariance, shared_with_wanted);
  double known = 0;
  for (size_t i = 0; i < n; ++i) {
    out.log_factor += weight[i] * anchors[i].log_error;
    known += weight[i] * shared_with_wanted[i];
  }
  out.interval_share = std::sqrt(std::max(own, total - known) / total);
  return out;
}

ErrorSpread estimate_spread(const std::vector<std::vector<MeasuredError>>& groups) {
  // Products of errors are family^2 + alike^2 nearness on average, of a row with itself own^2 more:
  // a least-squares line through the pairs, each family weighted with the square root of its rows.
  double weights = 0, near = 0, near_squared = 0, product = 0, near_product = 0;
  double total = 0, total_weight = 0;
  for (const std::vector<MeasuredError>& group : groups) {
    double count = 0;
    double sums[4] = {};
    double squares = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      squares += group[i].log_error * group[i].log_error;
      for (size_t j = 0; j < i; ++j) {
        if (!group[i].run.empty() && group[i].run == group[j].run) continue;
        const double k = nearness(group[i].kind, group[j].kind);
        const double both = group[i].log_error * group[j].log_error;
        ++count;
        sums[0] += k;
        sums[1] += k * k;
        sums[2] += both;
        sums[3] += k * both;
      }
    }
    const double rows = real(static_cast<int64_t>(group.size()));
    if (rows > 0) {
      total += std::sqrt(rows) * squares / rows;
      total_weight += std::sqrt(rows);
    }
    if (count == 0) continue;
    const double share = std::sqrt(rows) / count;
    weights += share * count;
    near += share * sums[0];
    near_squared += share * sums[1];
    product += share * sums[2];
    near_product += share * sums[3];
  }
  if (total_weight <= 0) return {};
  total /= total_weight;
  if (weights <= 0) return {0, 0, std::sqrt(total)};
  double family = std::max(0.0, product / weights);
  double alike = 0;
  const double determinant = weights * near_squared - near * near;
  if (determinant > 1e-9 * weights * near_squared) {
    alike = (weights * near_product - near * product) / determinant;
    family = (product - alike * near) / weights;
    if (family < 0) {
      family = 0;
      alike = near_product / near_squared;
    }
    if (alike < 0) {
      alike = 0;
      family = std::max(0.0, product / weights);
    }
  }
  // Extrapolated to equal layouts, for which there are no pairs.
  const double shared = kMostShared * total;
  family = std::min(family, shared);
  alike = std::clamp(alike, 0.0, shared - family);
  return {std::sqrt(family), std::sqrt(alike), std::sqrt(total - family - alike)};
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
    if (std::abs(std::log1p(validated.error)) > std::log(kMostMeasured)) {
      fail(ErrorKind::usage,
           "--anchor: line {}: {} {} is measured where {:.4g} is predicted, more than {} times "
           "apart; "
           "correct its value, metric, model or layout, or leave the row out",
           measured.line, measured.metric, measured.value, validated.predicted, kMostMeasured);
    }
    out.push_back(
        {row_kind(measured.recipe, row.system().chip), -std::log1p(validated.error), row.layout()});
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
  // That interval was measured with one anchor of the same kind; other anchors leave more or less.
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
