#include "tutti/plan/left_out.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tutti/base/error.h"
#include "tutti/base/real.h"
#include "tutti/plan/in_parallel.h"
#include "tutti/plan/interval.h"

namespace tutti::plan {
namespace {

bool has_time(const PreparedRow& row) { return row.predictable() && !row.is_memory(); }

std::string fold_of(const PreparedRow& row, LeftOutBy by) {
  switch (by) {
    case LeftOutBy::family: return software_family(row.measurement().software);
    case LeftOutBy::generation: return row.system().chip.generation;
    case LeftOutBy::software: return row.measurement().software;
  }
  return {};
}

// Errors with one anchor: of every row of a fold with every other layout that was measured with the
// same software on the same chip generation, as users measure.
struct Pair {
  size_t row = 0;
  double log_error = 0;  // remaining error
};

enum class Anchors { none, every, nearest };

struct Fold {
  std::string name;
  std::vector<size_t> rows;
  std::vector<MeasuredError> errors;
  std::vector<double> products_shares;  // of each row's step, as predicted
  std::vector<Pair> anchored;           // with every choice
  std::vector<Pair> nearest;            // with the nearest

  const std::vector<Pair>& pairs(Anchors anchors) const {
    return anchors == Anchors::nearest ? nearest : anchored;
  }
};

void anchor_rows(const std::vector<PreparedRow>& rows, const ErrorSpread& spread, Fold& fold) {
  for (size_t i = 0; i < fold.rows.size(); ++i) {
    const PreparedRow& row = rows[fold.rows[i]];
    const MeasuredError& error = fold.errors[i];
    double near = 0;
    Pair nearest;
    for (size_t a = 0; a < fold.rows.size(); ++a) {
      const PreparedRow& anchor = rows[fold.rows[a]];
      if (anchor.layout() == row.layout() || anchor.group() != row.group()) continue;
      const Correction correction = correction_for(spread, {fold.errors[a]}, error.kind);
      fold.anchored.push_back({i, error.log_error - correction.log_factor});
      const double here = nearness(fold.errors[a].kind, error.kind);
      if (here <= near || here == 1) continue;  // 1: equal except for a name
      near = here;
      nearest = fold.anchored.back();
    }
    if (near > 0) fold.nearest.push_back(nearest);
  }
}

// Of all folds except one: families are weighted by the square root of their rows.
std::vector<StepError> errors_without(const std::vector<Fold>& folds, const Fold* left_out,
                                      Anchors anchors) {
  std::vector<StepError> out;
  for (const Fold& fold : folds) {
    if (&fold == left_out) continue;
    const double root = std::sqrt(real(static_cast<int64_t>(fold.rows.size())));
    if (anchors == Anchors::none) {
      for (size_t i = 0; i < fold.rows.size(); ++i) {
        out.push_back({fold.errors[i].log_error, fold.products_shares[i], 1 / root});
      }
      continue;
    }
    const std::vector<Pair>& pairs = fold.pairs(anchors);
    const double weight = root / std::max(1.0, real(static_cast<int64_t>(pairs.size())));
    for (const Pair& pair : pairs) {
      out.push_back({pair.log_error, fold.products_shares[pair.row], weight});
    }
  }
  return out;
}

struct Interval {
  double products = 0;  // of steps of products alone
  double rest_ratio = 0;
  bool holds(double log_error, double products_share) const {
    return std::abs(log_error) <= products * error_growth(rest_ratio, products_share);
  }
};

Interval interval_without(const std::vector<Fold>& folds, const Fold* left_out, Anchors anchors) {
  Interval out;
  out.rest_ratio = estimate_rest_ratio(errors_without(folds, left_out, Anchors::none));
  out.products = interval_of(errors_without(folds, left_out, anchors), out.rest_ratio);
  return out;
}

AnchoredSummary summarize_pairs(const std::vector<Fold>& folds, const Fold& fold, Anchors anchors) {
  const Interval interval = interval_without(folds, &fold, anchors);
  const std::vector<Pair>& pairs = fold.pairs(anchors);
  AnchoredSummary out;
  const double count = real(static_cast<int64_t>(pairs.size()));
  for (const Pair& pair : pairs) {
    const double off = std::expm1(-pair.log_error);
    out.mean_error += std::abs(off) / count;
    out.bias += off / count;
    if (interval.holds(pair.log_error, fold.products_shares[pair.row])) out.inside += 1 / count;
  }
  return out;
}

LeftOutSummary summarize_fold(const std::vector<Fold>& folds, const Fold& fold) {
  const Interval interval = interval_without(folds, &fold, Anchors::none);
  LeftOutSummary out;
  out.name = fold.name;
  out.rows = static_cast<int64_t>(fold.errors.size());
  for (size_t i = 0; i < fold.errors.size(); ++i) {
    const double log_error = fold.errors[i].log_error;
    const double off = std::expm1(-log_error);
    out.mean_error += std::abs(off) / real(out.rows);
    out.bias += off / real(out.rows);
    if (interval.holds(log_error, fold.products_shares[i])) out.inside += 1 / real(out.rows);
  }
  out.anchored = summarize_pairs(folds, fold, Anchors::every);
  out.nearest = summarize_pairs(folds, fold, Anchors::nearest);
  return out;
}

// Over rows; anchored figures over the rows of folds that have an anchor.
LeftOutSummary summarize_all(const std::vector<LeftOutSummary>& folds,
                             const std::vector<Fold>& sources) {
  LeftOutSummary all;
  all.name = "all";
  double anchored_rows = 0;
  for (size_t f = 0; f < folds.size(); ++f) {
    const LeftOutSummary& fold = folds[f];
    const double rows = real(fold.rows);
    all.rows += fold.rows;
    all.mean_error += rows * fold.mean_error;
    all.bias += rows * fold.bias;
    all.inside += rows * fold.inside;
    if (sources[f].anchored.empty()) continue;
    anchored_rows += rows;
    for (AnchoredSummary LeftOutSummary::*part :
         {&LeftOutSummary::anchored, &LeftOutSummary::nearest}) {
      (all.*part).mean_error += rows * (fold.*part).mean_error;
      (all.*part).bias += rows * (fold.*part).bias;
      (all.*part).inside += rows * (fold.*part).inside;
    }
  }
  const double rows = std::max(1.0, real(all.rows));
  all.mean_error /= rows;
  all.bias /= rows;
  all.inside /= rows;
  for (AnchoredSummary* part : {&all.anchored, &all.nearest}) {
    for (double* value : {&part->mean_error, &part->bias, &part->inside}) {
      *value /= std::max(1.0, anchored_rows);
    }
  }
  return all;
}

// Groups of the rows marked in `fitted` whose sets the rows of `fold` will use.
std::set<std::string> groups_taken(const std::vector<PreparedRow>& rows,
                                   const std::vector<bool>& fitted, const Fold& fold) {
  std::map<std::string, Constants> by_name;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!fitted[i]) continue;
    Constants& set = by_name[rows[i].group()];
    set.name = rows[i].group();
    set.chip_generation = rows[i].system().chip.generation;
    set.software = rows[i].measurement().software;
  }
  std::vector<Constants> sets;
  sets.reserve(by_name.size());
  for (auto& [name, set] : by_name) sets.push_back(std::move(set));
  std::set<std::string> taken;
  for (const size_t i : fold.rows) {
    const Constants* set =
        find_constants(sets, rows[i].system().chip.generation, rows[i].measurement().software);
    if (set != nullptr) taken.insert(set->name);
  }
  return taken;
}

// Fits on the rows of all other folds (`names`, of each row), writes the predictions of the rows of
// `fold` to `validation` and records their errors.
void predict_fold(const std::vector<PreparedRow>& rows, LeftOutBy by, const FitOptions& options,
                  const std::vector<std::string>& names, Fold& fold, Validation& validation) {
  std::vector<const PreparedRow*> others;
  std::vector<bool> fitted;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool other = has_time(rows[i]) && names[i] != fold.name;
    if (other) others.push_back(&rows[i]);
    fitted.push_back(other);
  }
  std::vector<Constants> sets;
  if (by != LeftOutBy::family) {
    const std::set<std::string> taken = groups_taken(rows, fitted, fold);
    if (!taken.empty()) {
      sets = fit_groups(
          rows, fitted, options, nullptr, [](int64_t, int64_t) {}, taken);
    }
  }
  std::set<std::string> generations;  // if only pooled sets remain
  for (const size_t i : fold.rows) {
    const std::string& generation = rows[i].system().chip.generation;
    Nearness nearness = Nearness::assumed;
    find_constants(sets, generation, rows[i].measurement().software, &nearness);
    if (nearness > Nearness::family) generations.insert(generation);
  }
  if (!generations.empty()) {
    for (Constants& set : fit_pooled(others, options, generations)) {
      sets.push_back(std::move(set));
    }
  }
  for (const size_t i : fold.rows) {
    const Constants constants =
        constants_for(sets, rows[i].system().chip, rows[i].measurement().software);
    ValidatedRow& row = validation.rows[i] = validate_row(rows[i], constants, false);
    fold.errors.push_back({row_kind(rows[i].measurement().recipe, rows[i].system().chip),
                           -std::log1p(row.error), rows[i].layout()});
    fold.products_shares.push_back(rows[i].products_share(constants));
  }
}

}  // namespace

LeftOutBy parse_left_out(const std::string& text) {
  if (text == "family") return LeftOutBy::family;
  if (text == "generation") return LeftOutBy::generation;
  if (text == "software") return LeftOutBy::software;
  fail(ErrorKind::usage, "--leave-out: '{}' is unknown; accepted: family, generation, software",
       text);
}

LeftOut leave_out(const std::vector<PreparedRow>& rows, LeftOutBy by, const FitOptions& options,
                  const std::function<void(int64_t, int64_t)>& progress) {
  std::map<std::string, Fold> found;
  LeftOut out;
  for (size_t i = 0; i < rows.size(); ++i) {
    out.folds.emplace_back();
    out.validation.rows.push_back(
        has_time(rows[i]) ? ValidatedRow{} : validate_row(rows[i], assumed_constants(), true));
    if (!has_time(rows[i])) continue;
    out.folds.back() = fold_of(rows[i], by);
    found[out.folds.back()].rows.push_back(i);
  }
  if (found.size() < 2) {
    fail(ErrorKind::usage,
         "--leave-out: the rows of time have {} group(s); leaving one out needs two or more",
         found.size());
  }
  std::vector<Fold> folds;
  for (auto& [name, fold] : found) {
    fold.name = name;
    folds.push_back(std::move(fold));
  }
  in_parallel(
      folds.size(), options.threads,
      [&](size_t f) { predict_fold(rows, by, options, out.folds, folds[f], out.validation); },
      [&](size_t finished) {
        progress(static_cast<int64_t>(finished), static_cast<int64_t>(folds.size()));
      });
  std::vector<std::vector<MeasuredError>> errors;
  errors.reserve(folds.size());
  for (const Fold& fold : folds) errors.push_back(fold.errors);
  out.spread = estimate_spread(errors);
  for (Fold& fold : folds) anchor_rows(rows, out.spread, fold);
  const Interval interval = interval_without(folds, nullptr, Anchors::none);
  out.interval = interval.products;
  out.rest_ratio = interval.rest_ratio;
  out.anchored_interval = interval_without(folds, nullptr, Anchors::every).products;
  out.nearest_interval = interval_without(folds, nullptr, Anchors::nearest).products;
  for (const Fold& fold : folds) out.summary.push_back(summarize_fold(folds, fold));
  out.summary.push_back(summarize_all(out.summary, folds));
  out.validation.summary = summarize(out.validation.rows);
  return out;
}

ReleaseSpread release_spread(const std::vector<PreparedRow>& rows) {
  ReleaseSpread out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!has_time(rows[i])) continue;
    const Measurement& a = rows[i].measurement();
    for (size_t j = 0; j < i; ++j) {
      if (!has_time(rows[j])) continue;
      const Measurement& b = rows[j].measurement();
      if (a.software == b.software || software_family(a.software) != software_family(b.software) ||
          a.metric != b.metric || a.recipe.precision != b.recipe.precision ||
          a.recipe.recompute.mode != b.recipe.recompute.mode ||
          rows[i].layout() != rows[j].layout() || a.run.steps != b.run.steps) {
        continue;
      }
      const double size = std::abs(std::log(a.value / b.value));
      out.mean += size;
      out.worst = std::max(out.worst, size);
      ++out.pairs;
    }
  }
  if (out.pairs > 0) out.mean /= real(out.pairs);
  return out;
}

void set_left_out_intervals(const std::vector<PreparedRow>& rows, const FitOptions& options,
                            const std::function<void(int64_t, int64_t)>& progress,
                            std::vector<Constants>& sets) {
  const LeftOut families = leave_out(rows, LeftOutBy::family, options, progress);
  const LeftOut chips = leave_out(rows, LeftOutBy::generation, options, progress);
  const LeftOut releases = leave_out(rows, LeftOutBy::software, options, progress);
  for (Constants& set : sets) {
    if (set.software != kAny) {
      set.far_interval = releases.interval;
      set.rest_ratio = releases.rest_ratio;
      continue;
    }
    set.interval = families.interval;
    set.rest_ratio = families.rest_ratio;
    if (set.chip_generation != kAny) continue;
    set.interval = std::max(chips.interval, families.interval);
    set.rest_ratio = std::max(chips.rest_ratio, families.rest_ratio);
    set.anchored_interval = families.nearest_interval;
    set.spread = families.spread;
  }
}

void correct_rows(const std::vector<PreparedRow>& rows, const std::vector<Constants>& sets,
                  const std::vector<MeasuredError>& anchors, Validation& validation) {
  const ErrorSpread spread = spread_of(sets);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!has_time(rows[i])) continue;
    const Correction correction = correction_for(
        spread, anchors, row_kind(rows[i].measurement().recipe, rows[i].system().chip));
    ValidatedRow& row = validation.rows[i];
    const double before = 1 + row.error;
    const double factor = std::exp(correction.log_factor);
    row.predicted *= rows[i].is_rate() ? 1 / factor : factor;
    row.error = before * factor - 1;
  }
  validation.summary = summarize(validation.rows);
}

std::vector<const PreparedRow*> rows_of_time(const std::vector<PreparedRow>& rows) {
  std::vector<const PreparedRow*> out;
  for (const PreparedRow& row : rows) {
    if (has_time(row)) out.push_back(&row);
  }
  return out;
}

}  // namespace tutti::plan
