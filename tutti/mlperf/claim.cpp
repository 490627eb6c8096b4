#include "tutti/mlperf/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/chip_names.h"
#include "tutti/catalog/yaml_list.h"
#include "tutti/mlperf/reference.h"
#include "tutti/mlperf/statistics.h"

namespace tutti::mlperf {
namespace {

constexpr double kTera = 1e12;
constexpr size_t kNearRows = 5;
constexpr const char* kEightBits = "eight_bits";  // text of a chip whose 8-bit products are int8

double tflops(double flops_per_sample, double samples, int64_t accelerators, double minutes) {
  return flops_per_sample * samples / (static_cast<double>(accelerators) * minutes * 60) / kTera;
}

// The fewest samples that a score stands for, over all rulesets.
double fewest_samples(const catalog::Benchmark& benchmark) {
  double least = std::numeric_limits<double>::infinity();
  for (const catalog::ReferenceSet& set : benchmark.reference_sets) {
    for (const ReferenceMean& point : reference_means(set, benchmark.runs_per_result)) {
      least = std::min(least, point.mean);
    }
  }
  return least;
}

// The median over results with half to twice as many accelerators; over all when there is none.
double typical_samples(const std::vector<catalog::PublishedResult>& results, int64_t accelerators,
                       double fallback) {
  std::vector<double> near;
  std::vector<double> all;
  for (const auto& result : results) {
    all.push_back(result.samples_to_target);
    if (result.accelerators * 2 >= accelerators && result.accelerators <= accelerators * 2) {
      near.push_back(result.samples_to_target);
    }
  }
  if (!near.empty()) return median(near);
  return all.empty() ? fallback : median(all);
}

std::pair<double, std::string> dense_peak(const catalog::Chip& chip) {
  std::pair<double, std::string> best = {chip.bf16_flops, "bf16"};
  if (chip.fp8_flops > best.first) {
    best = {chip.fp8_flops, chip.entry.text_or(kEightBits, "fp8")};
  }
  if (chip.fp4_flops > best.first) best = {chip.fp4_flops, "fp4"};
  return best;
}

const catalog::Chip& chip_of(const catalog::Catalog& catalog, const std::string& name) {
  if (const catalog::Chip* chip = catalog::find_chip(catalog, name)) return *chip;
  return catalog.chip(name);  // throws, naming those that are known
}

double distance(const catalog::PublishedResult& result, int64_t accelerators, double minutes) {
  const double size =
      std::log(static_cast<double>(result.accelerators) / static_cast<double>(accelerators));
  const double time = std::log(result.minutes / minutes);
  return size * size + time * time;
}

void add_rates(const ClaimBasis& basis, const catalog::Benchmark& benchmark,
               const catalog::Chip& chip, ClaimAssessment& out) {
  const auto raise = [](std::optional<double>& best, double rate) {
    best = std::max(best.value_or(0), rate);
  };
  for (const auto& result : basis.published) {
    if (result.benchmark != benchmark.name) continue;
    NearRow row{result, tflops(benchmark.flops_per_sample, result.samples_to_target,
                               result.accelerators, result.raw_minutes)};
    if (catalog::find_chip(basis.catalog, result.accelerator) == &chip) {
      raise(out.best_tflops, row.tflops_per_accelerator);
      if (result.accelerators >= out.accelerators) {
        raise(out.best_tflops_at_size, row.tflops_per_accelerator);
      }
    }
    out.nearest.push_back(std::move(row));
  }
}

// Published with this chip, no more accelerators and no more time: the nearest such row.
void find_published(const ClaimBasis& basis, const catalog::Chip& chip, double rounding_minutes,
                    ClaimAssessment& out) {
  const double most = std::max(out.minutes * 1.0005, out.minutes + rounding_minutes);
  const auto found = std::find_if(out.nearest.begin(), out.nearest.end(), [&](const NearRow& row) {
    return catalog::find_chip(basis.catalog, row.result.accelerator) == &chip &&
           row.result.accelerators <= out.accelerators && row.result.minutes <= most;
  });
  if (found != out.nearest.end()) out.published_by = *found;
}

void add_cost(const ClaimBasis& basis, const catalog::Chip& chip, const Claim& claim,
              ClaimAssessment& out) {
  const double hours = static_cast<double>(out.accelerators) * out.minutes / 60;
  const auto take = [&](double price) {
    if (price <= 0) return;
    out.cost_low_usd = std::min(out.cost_low_usd.value_or(price * hours), price * hours);
    out.cost_high_usd = std::max(out.cost_high_usd.value_or(0), price * hours);
  };
  for (const catalog::Price& price : basis.catalog.prices) {
    if (basis.catalog.system(price.system).chip.name == chip.name) {
      take(price.on_demand_usd_per_hour);
      take(price.spot_usd_per_hour);
      take(price.reserved_usd_per_hour);
    }
  }
  if (out.cost_low_usd) {
    out.arithmetic.push_back(
        fmt::format("cost at catalog prices: {:.1f} accelerator-hours, ${:.0f} "
                    "to ${:.0f}",
                    hours, *out.cost_low_usd, *out.cost_high_usd));
  }
  if (!claim.cost_usd) return;
  out.claimed_usd_per_hour = *claim.cost_usd / hours;
  out.arithmetic.push_back(
      fmt::format("claimed ${:.0f} / {:.1f} accelerator-hours = ${:.2f} per "
                  "accelerator-hour",
                  *claim.cost_usd, hours, *out.claimed_usd_per_hour));
}

void judge(ClaimAssessment& out) {
  const std::string what = fmt::format("{} on {} {} in {:.4g} min", out.benchmark, out.accelerators,
                                       out.chip, out.minutes);
  if (out.published_by) {
    const catalog::PublishedResult& row = out.published_by->result;
    out.verdict = Verdict::possible;
    out.sentence =
        fmt::format("{} is possible: a published result did it ({} {}, {} {} in {:.4g} min).", what,
                    row.round, row.submitter, row.accelerators, row.accelerator, row.minutes);
  } else if (out.least_tflops > out.peak_tflops) {
    out.verdict = Verdict::impossible;
    out.sentence = fmt::format(
        "{} is impossible: it needs {:.0f} TFLOP/s per accelerator ({:.0f} with the fewest samples "
        "a "
        "score can stand for), above the dense {} peak of {:.0f}.",
        what, out.needed_tflops, out.least_tflops, out.peak_precision, out.peak_tflops);
  } else if (out.best_tflops_at_size && out.needed_tflops <= *out.best_tflops_at_size) {
    out.verdict = Verdict::possible;
    out.sentence = fmt::format(
        "{} is possible: it needs {:.0f} TFLOP/s per accelerator, and {:.0f} "
        "was published at this size or above.",
        what, out.needed_tflops, *out.best_tflops_at_size);
  } else {
    out.verdict = Verdict::never_seen;
    out.sentence = fmt::format("{} was never seen: it needs {:.0f} TFLOP/s per accelerator; ", what,
                               out.needed_tflops);
    if (out.best_tflops) {
      out.sentence +=
          fmt::format("the best published rate on this chip is {:.0f}{}.", *out.best_tflops,
                      out.needed_tflops <= *out.best_tflops ? ", at a smaller size" : "");
    } else {
      out.sentence += "nothing was published on this chip.";
    }
  }
  if (out.best_minutes && out.verdict != Verdict::possible) {
    out.sentence += fmt::format(" At that best rate it takes {:.3g} minutes.", *out.best_minutes);
  }
}

}  // namespace

double rounding_of(std::string_view digits) {
  const size_t point = digits.find('.');
  const auto decimals =
      point == std::string_view::npos ? 0 : static_cast<double>(digits.size() - point - 1);
  constexpr double kMost = 0.02;
  const double value = std::strtod(std::string(digits).c_str(), nullptr);
  return std::min(0.5 * std::pow(10, -decimals), kMost * value);
}

void add_published_chips(FileSystem& files, const std::string& catalog_folder,
                         catalog::Catalog& catalog) {
  const std::string folder = join_path(join_path(catalog_folder, "published"), "chips");
  if (!files.is_directory(folder)) return;
  catalog::for_each_yaml(files, folder, [&](const std::string& text, const std::string& path) {
    catalog::Chip chip = catalog::chip_from(catalog::parse_entry(text, path));
    for (catalog::Chip& known : catalog.chips) {
      if (catalog::plain_name(known.name) != catalog::plain_name(chip.name)) continue;
      if (known.fp8_flops == 0) {
        known.fp8_flops = chip.fp8_flops;
        const std::string eight_bits = chip.entry.text_or(kEightBits, "");
        if (!eight_bits.empty()) known.entry.texts[kEightBits] = eight_bits;
      }
      if (known.fp4_flops == 0) known.fp4_flops = chip.fp4_flops;
      auto& aliases = known.entry.aliases;
      aliases.insert(aliases.end(), chip.entry.aliases.begin(), chip.entry.aliases.end());
      return;
    }
    catalog.chips.push_back(std::move(chip));
  });
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::possible: return "possible";
    case Verdict::never_seen: return "never seen";
    case Verdict::impossible: return "impossible";
  }
  return "";
}

namespace {

ClaimAssessment assess_number(const Claim& claim, const ClaimBasis& basis) {
  const catalog::Benchmark* benchmark = catalog::find_benchmark(basis.benchmarks, claim.benchmark);
  if (benchmark == nullptr) {
    std::vector<std::string> names;
    for (const auto& known : basis.benchmarks) names.push_back(known.name);
    fail(ErrorKind::not_found, "model '{}' is not a benchmark of the catalog; known: {}",
         claim.benchmark, join(names, ", "));
  }
  const catalog::Chip& chip = chip_of(basis.catalog, claim.chip);
  ClaimAssessment out;
  out.benchmark = benchmark->title;
  out.chip = chip.name;
  out.accelerators = claim.accelerators;
  add_rates(basis, *benchmark, chip, out);

  std::vector<catalog::PublishedResult> results;
  for (const NearRow& row : out.nearest) results.push_back(row.result);
  out.least_samples = fewest_samples(*benchmark);
  out.samples_to_target = typical_samples(results, claim.accelerators, out.least_samples);
  const double flops = benchmark->flops_per_sample * out.samples_to_target;
  if (out.best_tflops) {
    out.best_minutes =
        flops / (*out.best_tflops * kTera * static_cast<double>(out.accelerators)) / 60;
  }
  if (claim.minutes) {
    out.minutes = *claim.minutes;
  } else if (claim.speedup && out.best_minutes) {
    out.minutes = *out.best_minutes / *claim.speedup;
    out.arithmetic.push_back(
        fmt::format("{:.4g} min at the best published rate / {:.4g} = {:.4g} "
                    "min",
                    *out.best_minutes, *claim.speedup, out.minutes));
  } else {
    fail(ErrorKind::usage, "a claim needs a time{}",
         claim.speedup ? ": nothing was published on this chip to compare the speed-up with"
                       : "; give --minutes, or --speedup over the best published rate");
  }
  out.needed_tflops =
      tflops(benchmark->flops_per_sample, out.samples_to_target, out.accelerators, out.minutes);
  out.least_tflops =
      tflops(benchmark->flops_per_sample, out.least_samples, out.accelerators, out.minutes);
  const auto [peak, precision] = dense_peak(chip);
  out.peak_tflops = peak / kTera;
  out.peak_precision = precision;
  std::stable_sort(out.nearest.begin(), out.nearest.end(), [&](const NearRow& a, const NearRow& b) {
    return distance(a.result, out.accelerators, out.minutes) <
           distance(b.result, out.accelerators, out.minutes);
  });
  out.arithmetic.push_back(fmt::format(
      "{:.4g} FLOPs per sample ({}) x {:.0f} samples to target ({:.4g} tokens; median of published "
      "results) = {:.4g} FLOPs",
      benchmark->flops_per_sample, benchmark->flops_formula, out.samples_to_target,
      out.samples_to_target * static_cast<double>(benchmark->sequence_tokens), flops));
  out.arithmetic.push_back(
      fmt::format("/ ({} accelerators x {:.1f} s) = {:.0f} TFLOP/s per "
                  "accelerator",
                  out.accelerators, out.minutes * 60, out.needed_tflops));
  out.arithmetic.push_back(
      fmt::format("with {:.0f} samples, the fewest a score can stand for: "
                  "{:.0f} TFLOP/s",
                  out.least_samples, out.least_tflops));
  out.arithmetic.push_back(fmt::format(
      "{} dense {} peak: {:.0f} TFLOP/s; best published: {}", out.chip, out.peak_precision,
      out.peak_tflops,
      out.best_tflops ? fmt::format("{:.0f} TFLOP/s", *out.best_tflops) : std::string("none")));
  add_cost(basis, chip, claim, out);
  find_published(basis, chip, claim.rounding_minutes, out);
  judge(out);
  if (out.nearest.size() > kNearRows) out.nearest.resize(kNearRows);
  return out;
}

}  // namespace

ClaimAssessment assess_claim(const Claim& claim, const ClaimBasis& basis) {
  ClaimAssessment first = assess_number(claim, basis);
  if (claim.accelerators_or == 0) return first;
  Claim other = claim;
  other.accelerators = claim.accelerators_or;
  ClaimAssessment second = assess_number(other, basis);
  const bool take_second = (second.published_by && !first.published_by) ||
                           (second.verdict == Verdict::possible && first.verdict != second.verdict);
  ClaimAssessment& taken = take_second ? second : first;
  const ClaimAssessment& left = take_second ? first : second;
  taken.arithmetic.push_back(fmt::format("the number of accelerators is read as {}; as {} it is {}",
                                         taken.accelerators, left.accelerators,
                                         left.published_by && !taken.published_by
                                             ? "a published result"
                                             : verdict_name(left.verdict)));
  return std::move(taken);
}

Json to_json(const ClaimAssessment& a) {
  const auto number = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  Json nearest = Json::array();
  for (const NearRow& row : a.nearest) {
    nearest.push_back({{"source", row.result.source},
                       {"submitter", row.result.submitter},
                       {"accelerator", row.result.accelerator},
                       {"accelerators", row.result.accelerators},
                       {"minutes", row.result.minutes},
                       {"samples_to_target", row.result.samples_to_target},
                       {"tflops_per_accelerator", row.tflops_per_accelerator}});
  }
  return {{"verdict", verdict_name(a.verdict)},
          {"benchmark", a.benchmark},
          {"chip", a.chip},
          {"accelerators", a.accelerators},
          {"minutes", a.minutes},
          {"needed_tflops_per_accelerator", a.needed_tflops},
          {"least_tflops_per_accelerator", a.least_tflops},
          {"peak_tflops", a.peak_tflops},
          {"peak_precision", a.peak_precision},
          {"best_published_tflops", number(a.best_tflops)},
          {"best_published_tflops_at_size", number(a.best_tflops_at_size)},
          {"minutes_at_best_rate", number(a.best_minutes)},
          {"samples_to_target", a.samples_to_target},
          {"least_samples", a.least_samples},
          {"cost_usd", {{"low", number(a.cost_low_usd)}, {"high", number(a.cost_high_usd)}}},
          {"claimed_usd_per_accelerator_hour", number(a.claimed_usd_per_hour)},
          {"published_by", a.published_by ? Json(a.published_by->result.source) : Json(nullptr)},
          {"nearest", std::move(nearest)},
          {"arithmetic", a.arithmetic},
          {"sentence", a.sentence}};
}

}  // namespace tutti::mlperf
