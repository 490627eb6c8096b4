// Is a machine as fast as a reference says it should be?
//
// After the method of NVIDIA's Exemplar clouds (at least 95% of the baseline on every workload),
// with more behind a verdict. Results and reference are paired by workload: benchmark, number of
// accelerators, hyperparameters. Two measures count, both per valid repeat:
//
//   throughput  samples per second in steady training
//   time        samples per second from start to end: start-up, evaluation, slow steps and stalls
//               included (not time to target, which convergence decides as much as the machine)
//
// For each, the ratio to the reference is that of geometric means, with a 95% interval
// (statistics.h, ratio_interval). Repeats of different systems are never pooled: each system of the
// results is a workload of its own, and a reference that holds several systems of one size must
// hold that of the results, or there is nothing to compare with. The rule: the ratio must reach the
// threshold, and the interval must not reach further below it than half of the shortfall the
// threshold allows (0.95: 0.925); strictly, not below it at all. A ratio that does not is too slow;
// an interval that does not is not a verdict: more repeats, or less noise. Five repeats or more on
// both sides; one invalid repeat of the results (NaN, skipped steps, not finished) and there is no
// verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/mlperf/repeats.h"
#include "tutti/mlperf/statistics.h"

namespace tutti::mlperf {

inline constexpr int64_t kLeastRepeats = 5;
inline constexpr double kConfidence = 0.95;

struct ValidationOptions {
  double threshold = 0.95;  // in (0, 1]
  bool strict = false;

  double least_bound() const { return strict ? threshold : threshold - (1 - threshold) / 2; }
};

enum class Judgement {
  pass,
  short_of,      // a ratio is below the threshold
  noisy,         // the ratios reach it, an interval does not
  insufficient,  // too few repeats
  invalid,       // a repeat of the results does not count
  incomparable,  // other hyperparameters, or several systems in the reference
  no_reference,  // of this benchmark and size
  not_measured,  // the reference has it, the results do not
};
const char* judgement_name(Judgement judgement);

struct Measure {
  std::string name;   // "throughput", "time"
  double result = 0;  // mean, per second
  double reference = 0;
  RatioInterval ratio;
  double result_variation = 0;
  double reference_variation = 0;
};

// A part of the time per sample: how much of the reference's time per sample the results take
// longer by it, and the factor of the ratio of times (compare.h; factors multiply to the ratio).
struct LostTime {
  std::string part;  // "steady steps", ...
  double share = 0;
  double factor = 1;
};

struct WorkloadValidation {
  std::string name;    // with the system where there are several
  std::string system;  // as in Workload; "" when it is unknown
  std::string unit;
  Judgement judgement = Judgement::pass;
  int64_t result_repeats = 0;  // valid ones
  int64_t reference_repeats = 0;
  std::vector<Measure> measures;
  std::vector<LostTime> lost;
  std::vector<std::string> invalid;   // "RUN: why"
  std::vector<std::string> unequal;   // settings: "KEY: RESULT, REFERENCE"
  std::vector<std::string> suspects;  // what to look at, most lost time first
  std::string reason;                 // one sentence
};

struct Validation {
  ValidationOptions options;
  std::vector<WorkloadValidation> workloads;

  bool all(Judgement judgement) const;
  bool any(Judgement judgement) const;
};

Validation validate(const std::vector<Workload>& results, const std::vector<Workload>& reference,
                    const ValidationOptions& options);

std::string rule_text(const ValidationOptions& options);
Json to_json(const Validation& validation);
std::string format_validation(const Validation& validation);

}  // namespace tutti::mlperf
