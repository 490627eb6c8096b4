#include "tutti/mlperf/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/mlperf/statistics.h"

namespace tutti::mlperf {
namespace {

constexpr double kAlpha = 0.05;

// The least mean of `runs` - 2 runs that the t-test calls equal to `mean` of `reference_runs`.
double least_mean(double mean, double deviation, double reference_runs, int64_t runs) {
  if (deviation == 0) return mean;
  const double own_runs = static_cast<double>(runs) - 2;
  const double t = student_quantile(kAlpha, reference_runs + own_runs - 2);
  return std::max(0.0, mean + t * deviation * std::sqrt(1 / reference_runs + 1 / own_runs));
}

// Drops the smaller batches than the fastest one's, then every point that is slower than the line
// between its neighbours, going back one step after each.
void prune(std::vector<ReferenceMean>& points) {
  const auto fastest = std::min_element(
      points.begin(), points.end(), [](const auto& a, const auto& b) { return a.mean < b.mean; });
  std::vector<ReferenceMean*> kept;
  for (ReferenceMean& point : points) {
    point.pruned = point.batch < fastest->batch;
    if (!point.pruned) kept.push_back(&point);
  }
  for (size_t i = 1; i + 1 < kept.size();) {
    const ReferenceMean& low = *kept[i - 1];
    const ReferenceMean& high = *kept[i + 1];
    if (kept[i]->mean > interpolate(kept[i]->batch, low.batch, low.mean, high.batch, high.mean)) {
      kept[i]->pruned = true;
      // The same index again: it now holds the next point.
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

ReferenceTest judge(const ReferenceMean& reference, double mean_samples, double allowance) {
  ReferenceTest test;
  test.known = true;
  test.mean_samples = mean_samples;
  test.reference_samples = reference.mean;
  test.least_samples = reference.least - allowance;
  // In this form as published, so that equal means pass in spite of rounding.
  const double speedup = reference.mean / test.least_samples;
  test.pass = mean_samples >= reference.mean / speedup;
  test.scale = std::max(1.0, reference.mean / mean_samples);
  return test;
}

bool since_version_5(std::string_view ruleset) {
  return !ruleset.empty() && ruleset[0] >= '5' && ruleset[0] <= '9';
}

}  // namespace

std::vector<ReferenceMean> reference_means(const catalog::ReferenceSet& set, int64_t runs) {
  std::vector<ReferenceMean> points;
  for (const catalog::ReferencePoint& point : set.points) {
    ReferenceMean reference;
    reference.batch = static_cast<double>(point.global_batch_samples);
    reference.mean = olympic_mean(point.samples_per_run);
    reference.deviation = population_deviation(point.samples_per_run);
    reference.least = least_mean(reference.mean, reference.deviation,
                                 static_cast<double>(point.samples_per_run.size()) - 2, runs);
    points.push_back(reference);
  }
  if (!points.empty()) prune(points);
  return points;
}

ReferenceMean interpolate_reference(const ReferenceMean& low, const ReferenceMean& high,
                                    double batch, int64_t runs) {
  ReferenceMean reference;
  reference.batch = batch;
  reference.mean = interpolate(batch, low.batch, low.mean, high.batch, high.mean);
  reference.deviation = interpolate(batch, low.batch, low.deviation, high.batch, high.deviation);
  // References have twice the runs of a result, by the rules.
  reference.least =
      least_mean(reference.mean, reference.deviation, 2 * static_cast<double>(runs), runs);
  return reference;
}

ReferenceTest test_reference(const catalog::Benchmark& benchmark, std::string_view ruleset,
                             double batch, double mean_samples) {
  const auto none = [&](std::string why) {
    ReferenceTest test;
    test.mean_samples = mean_samples;
    test.basis = std::move(why);
    return test;
  };
  const catalog::ReferenceSet* set = catalog::find_reference_set(benchmark, ruleset);
  if (set == nullptr || set->points.empty()) {
    return none(fmt::format("no reference points of {} for ruleset {}", benchmark.name, ruleset));
  }
  const double allowance =
      since_version_5(ruleset) ? static_cast<double>(benchmark.allowance_samples) : 0;
  const ReferenceMean* low = nullptr;
  const ReferenceMean* high = nullptr;
  const auto points = reference_means(*set, benchmark.runs_per_result);
  for (const ReferenceMean& point : points) {
    if (point.pruned) continue;
    if (point.batch <= batch) low = &point;
    if (point.batch >= batch && high == nullptr) high = &point;
  }
  ReferenceTest test;
  if (high == nullptr) {
    return none(fmt::format("no reference point at batch {} or above", batch));
  }
  if (low == nullptr) {
    test = judge(*high, mean_samples, allowance);
    test.basis = fmt::format("smallest point, {}", high->batch);
    test.below_smallest = true;
  } else if (low == high) {
    test = judge(*low, mean_samples, allowance);
    test.basis = fmt::format("point at {}", batch);
  } else {
    test = judge(interpolate_reference(*low, *high, batch, benchmark.runs_per_result), mean_samples,
                 allowance);
    test.basis = fmt::format("between {} and {}", low->batch, high->batch);
  }
  if (!test.pass) test.scale = 1;
  return test;
}

}  // namespace tutti::mlperf
