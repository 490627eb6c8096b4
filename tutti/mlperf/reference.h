// The convergence test: has a result needed as many samples as the reference implementation does?
//
// Rule (mlcommons/training_policies, training_rules.adoc, "RCPs"; mlcommons/logging, rcp_checker):
// reference points are pruned to those on the fast side over the batch size, and interpolated
// linearly between them. A result's olympic mean of samples must not be below the least mean that a
// one-sided t-test (pooled deviation, 5%) would still call equal to the reference. Between that
// limit and the reference mean the result passes, and its time is multiplied by reference mean /
// own mean; from the reference mean on it passes unscaled. Batches beyond the largest reference
// point need a new one; batches below the smallest are compared with the smallest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/catalog/benchmarks.h"

namespace tutti::mlperf {

struct ReferenceMean {
  double batch = 0;      // samples
  double mean = 0;       // olympic, samples
  double deviation = 0;  // of the population, all runs
  double least = 0;      // the least acceptable mean
  bool pruned = false;   // off the fast side: not used
};

// One per published point, ascending batch. `runs` are those of a result.
std::vector<ReferenceMean> reference_means(const catalog::ReferenceSet& set, int64_t runs);

// The reference at any batch between two kept points; their own runs no longer count.
ReferenceMean interpolate_reference(const ReferenceMean& low, const ReferenceMean& high,
                                    double batch, int64_t runs);

struct ReferenceTest {
  bool known = false;  // there are reference points for this ruleset and batch
  bool pass = false;
  bool below_smallest =
      false;                // the batch is smaller than every point: tested against the smallest
  double scale = 1;         // of the time, 1 or more; only when it passes
  double mean_samples = 0;  // of the result
  double reference_samples = 0;
  double least_samples = 0;
  std::string basis;  // "point at 2048", "between 2048 and 3072", why there is none
};

// `mean_samples`: olympic mean of the samples to target of a result's runs, run at `batch`.
ReferenceTest test_reference(const catalog::Benchmark& benchmark, std::string_view ruleset,
                             double batch, double mean_samples);

}  // namespace tutti::mlperf
