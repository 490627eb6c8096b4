// Why do two results of one benchmark differ?
//
// The score of a result is k (S / (x n) + E + U): scaling factor k, samples to target S, steady
// throughput x of one accelerator, accelerators n, seconds of evaluation E and of start-up U, each
// averaged over the counted runs. The ratio of two scores splits into one factor for each by the
// logarithmic mean L(p, q) = (p - q) / ln(p / q) (Ang, "The LMDI approach to decomposition
// analysis", Energy Policy 33, 2005): with raw times T_a, T_b and training times A_a, A_b,
//
//   ln(T_a / T_b) = L(A_a, A_b) / L(T_a, T_b) (ln S_a/S_b - ln x_a/x_b - ln n_a/n_b)
//                 + (E_a - E_b) / L(T_a, T_b) + (U_a - U_b) / L(T_a, T_b),
//
// which is exact, symmetric in a and b, and defined for parts that are zero. So the factors
// multiply to the ratio; a factor above 1 makes a slower than b.
//
// A row of published results says nothing about the times within its runs: against one, both
// results count from start to end, E and U are inside of x, and the order cannot be tested.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/catalog/published.h"
#include "tutti/mlperf/score.h"
#include "tutti/mlperf/statistics.h"
#include "tutti/mlperf/timeline.h"

namespace tutti::mlperf {

struct ComparedResult {
  std::string name;  // round or "no round", submitter, accelerators, chip
  std::string chip;  // "" when it is not known
  double minutes = 0;
  double raw_minutes = 0;
  double scale = 1;
  double accelerators = 1;
  bool accelerators_known = false;
  // Means over the counted runs.
  double samples = 0;
  double samples_per_second = 0;  // steady, all accelerators
  double training_seconds = 0;
  double evaluation_seconds = 0;
  double startup_seconds = 0;
  double evaluations = 0;
  double step_seconds = 0;  // of a steady step; 0: not known
  bool evaluations_timed = true;
  bool from_start_to_end = false;   // throughput is that of whole runs; no evaluation, no start-up
  std::vector<Timeline> timelines;  // of the converged runs
};

struct Factors {
  double throughput = 1;  // per accelerator
  double accelerators = 1;
  double samples_to_target = 1;
  double evaluation = 1;
  double startup = 1;
  double scaling = 1;

  double product() const;
};

// With the names people read, in the order above.
std::vector<std::pair<std::string, double>> named_factors(const Factors& factors);

struct SettingDifference {
  std::string key;
  Json a;  // null: not logged
  Json b;
};

struct Comparison {
  ComparedResult a;
  ComparedResult b;
  double ratio = 1;  // minutes of a / minutes of b
  Factors factors;
  bool order_tested = true;  // both sides have runs
  OrderTest samples_order;   // samples to target of all converged runs
  OrderTest minutes_order;   // raw minutes of all converged runs
  std::vector<SettingDifference> settings;
  std::vector<std::string> notes;
  std::string verdict;  // one sentence
};

// One side of a comparison.
struct ComparedSide {
  ComparedResult result;
  std::string benchmark;
  std::vector<double> samples;  // of every converged run; none of a published row
  std::vector<double> minutes;  // raw
  std::vector<std::pair<std::string, Json>> settings;
  std::vector<std::string> notes;
};

// The notes of the score are notes of the side. Throws usage when the result has no score.
ComparedSide side_of(const Score& score);
ComparedSide side_of(const catalog::PublishedResult& row);

// Throws usage when the sides are of different benchmarks.
Comparison compare_sides(ComparedSide a, ComparedSide b);
Comparison compare_results(const Score& a, const Score& b);

// Whether two names of accelerators mean one chip: "NVIDIA Blackwell GPU (GB200)" and "GB200".
bool same_chip(const ComparedResult& a, const ComparedResult& b);

Json to_json(const Comparison& comparison);
std::string format_comparison(const Comparison& comparison);  // tables and the sentence
std::string verdict_of(const Comparison& comparison);         // the sentence

}  // namespace tutti::mlperf
