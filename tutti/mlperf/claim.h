// Is a claimed training record possible?
//
// "GPT-3 175B on 1,024 H100 in 9.87 minutes" needs, per accelerator,
//
//   FLOPs per sample x samples to target / (accelerators x seconds)
//
// and that is compared with the dense peak of the chip in its fastest precision, and with the rates
// of published results of the benchmark. Samples to target are the median of published results of a
// similar size. Impossible is only what exceeds the peak even with the fewest samples that a score
// can stand for: the fastest reference mean, since faster convergence is scaled up to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/catalog/catalog.h"
#include "tutti/catalog/published.h"

namespace tutti::mlperf {

struct Claim {
  std::string benchmark;  // a name that catalog::find_benchmark knows
  int64_t accelerators = 0;
  // What the number may mean as well, 8192 of "8k"; 0: nothing else.
  int64_t accelerators_or = 0;
  std::string chip;  // a name or product name of the catalog's chips
  // One of the two: the time, or how often faster than the best published rate allows.
  std::optional<double> minutes;
  // How far the published time may be above `minutes`, which is rounded: 3.44 is said of 3.444. At
  // most half a unit of the last digit (rounding_of).
  double rounding_minutes = 0;
  std::optional<double> speedup;
  std::optional<double> cost_usd;
};

// What a claim is made against.
struct ClaimBasis {
  std::vector<catalog::Benchmark> benchmarks;
  catalog::Catalog catalog;
  std::vector<catalog::PublishedResult> published;
};

// Half a unit of the last digit of a decimal number, "3.44": 0.005; but no more than 2% of it.
double rounding_of(std::string_view digits);

// The chips of results that the catalog's chips lack (CATALOG/published/chips/*.yaml, in the form
// of catalog/entry.h) are added to them; to those that it has, the peaks of precisions that it
// lacks. Without such a folder nothing is added.
void add_published_chips(FileSystem& files, const std::string& catalog_folder,
                         catalog::Catalog& catalog);

enum class Verdict { possible, never_seen, impossible };
const char* verdict_name(Verdict verdict);  // "possible", "never seen", "impossible"

struct NearRow {
  catalog::PublishedResult result;
  double tflops_per_accelerator = 0;  // by raw minutes
};

struct ClaimAssessment {
  Verdict verdict = Verdict::possible;
  std::string benchmark;
  std::string chip;
  int64_t accelerators = 0;
  double minutes = 0;
  std::optional<NearRow> published_by;  // a published result that did as much
  double samples_to_target = 0;         // typical
  double least_samples = 0;             // the fewest a score can stand for
  double needed_tflops = 0;             // per accelerator, typical samples
  double least_tflops = 0;              // with the fewest samples
  double peak_tflops = 0;               // dense
  std::string peak_precision;
  std::optional<double> best_tflops;          // any published result on this chip
  std::optional<double> best_tflops_at_size;  // with as many accelerators or more
  std::optional<double> best_minutes;         // this many accelerators at the best rate
  std::vector<NearRow> nearest;               // published results, nearest first
  std::optional<double> cost_low_usd;         // at list prices
  std::optional<double> cost_high_usd;
  std::optional<double> claimed_usd_per_hour;  // per accelerator, that the claimed cost implies
  std::vector<std::string> arithmetic;         // line by line
  std::string sentence;
};

// Of a number that may mean two, the first that was published or is possible, else the first; the
// arithmetic says which. Throws usage or not_found naming what is unknown or missing.
ClaimAssessment assess_claim(const Claim& claim, const ClaimBasis& basis);

Json to_json(const ClaimAssessment& assessment);

}  // namespace tutti::mlperf
