#include "tutti/mlperf/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

// Differences below this are not investigated.
constexpr double kWorthNaming = 0.005;
constexpr double kNoisyVariation = 0.02;

std::vector<const Repeat*> valid_repeats(const Workload& workload) {
  std::vector<const Repeat*> out;
  for (const Repeat& repeat : workload.repeats) {
    if (repeat.invalid.empty()) out.push_back(&repeat);
  }
  return out;
}

std::vector<double> values(const std::vector<const Repeat*>& repeats,
                           const std::function<double(const Repeat&)>& of) {
  std::vector<double> out;
  out.reserve(repeats.size());
  for (const Repeat* repeat : repeats) out.push_back(of(*repeat));
  return out;
}

Measure measure(const char* name, const std::vector<const Repeat*>& results,
                const std::vector<const Repeat*>& reference,
                const std::function<double(const Repeat&)>& of) {
  const std::vector<double> a = values(results, of);
  const std::vector<double> b = values(reference, of);
  return {name, mean(a), mean(b), ratio_interval(a, b, kConfidence), variation(a), variation(b)};
}

struct Part {
  const char* name;
  double TimeParts::*seconds;
  const char* suspect;
};
constexpr Part kParts[] = {
    {"steady steps", &TimeParts::steady,
     "every step is slow: clocks, power caps, temperature or other load (compare the GEMM rate of "
     "each machine with its ceiling: tutti bench kernels), then links between accelerators"},
    {"step-time tail", &TimeParts::tail,
     "some steps are slow: a straggling machine, the network, or other jobs on the node"},
    {"start-up", &TimeParts::start,
     "the first steps are slow: storage, cold caches, compilation or set-up of connections"},
    {"evaluation", &TimeParts::evaluation,
     "evaluation is slow: reading the evaluation set, or gathering its results"},
    {"stalls", &TimeParts::stalls,
     "time passes between steps: checkpoints waiting for storage, or the host"},
};

double per_sample(const std::vector<const Repeat*>& repeats,
                  const std::function<double(const Repeat&)>& seconds) {
  return mean(values(repeats, [&](const Repeat& r) { return seconds(r) / r.samples; }));
}

// Logarithmic-mean split of the ratio of times per sample, as in compare.h.
std::vector<LostTime> lost_time(const std::vector<const Repeat*>& results,
                                const std::vector<const Repeat*>& reference) {
  const auto total = [](const Repeat& r) { return r.seconds.sum(); };
  const double a = per_sample(results, total);
  const double b = per_sample(reference, total);
  const double weight = logarithmic_mean(a, b);
  std::vector<LostTime> out;
  for (const Part& part : kParts) {
    const auto seconds = [&](const Repeat& r) { return r.seconds.*part.seconds; };
    const double more = per_sample(results, seconds) - per_sample(reference, seconds);
    out.push_back({part.name, more / b, std::exp(more / weight)});
  }
  return out;
}

std::string share_text(double share) { return fmt::format("{:.1f}%", 100 * share); }

void name_suspects(const std::vector<const Repeat*>& results,
                   const std::vector<const Repeat*>& reference, WorkloadValidation& out) {
  double whole = 0;
  for (const LostTime& lost : out.lost) whole += lost.share;
  std::vector<std::pair<double, std::string>> named;
  for (size_t i = 0; i < out.lost.size(); ++i) {
    const LostTime& lost = out.lost[i];
    if (lost.share < std::max(kWorthNaming, whole / 10)) continue;
    named.emplace_back(lost.share, fmt::format("{} (+{} of the time): {}", lost.part,
                                               share_text(lost.share), kParts[i].suspect));
  }
  std::stable_sort(named.begin(), named.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  for (auto& [share, text] : named) out.suspects.push_back(std::move(text));
  const auto waits = [](const Repeat& r) { return r.data_wait_seconds; };
  const double waited = per_sample(results, waits) - per_sample(reference, waits);
  const double total = per_sample(reference, [](const Repeat& r) { return r.seconds.sum(); });
  if (waited / total >= kWorthNaming) {
    out.suspects.push_back(fmt::format(
        "waiting for data (+{} of the time, within steps): storage of the corpora, or too few "
        "cores for the loader",
        share_text(waited / total)));
  }
  for (const Measure& m : out.measures) {
    if (m.result_variation < kNoisyVariation || m.result_variation < 2 * m.reference_variation) {
      continue;
    }
    out.suspects.push_back(fmt::format(
        "{} varies by {} between repeats: other jobs on the machine, placement of ranks, clocks "
        "that are not fixed",
        m.name, share_text(m.result_variation)));
  }
}

void judge(const ValidationOptions& options, WorkloadValidation& out) {
  const auto worst = std::min_element(
      out.measures.begin(), out.measures.end(),
      [](const Measure& x, const Measure& y) { return x.ratio.ratio < y.ratio.ratio; });
  if (worst->ratio.ratio < options.threshold) {
    out.judgement = Judgement::short_of;
    out.reason = fmt::format("{} is {:.3f} of the reference, below {:g}", worst->name,
                             worst->ratio.ratio, options.threshold);
    return;
  }
  const auto widest = std::min_element(
      out.measures.begin(), out.measures.end(),
      [](const Measure& x, const Measure& y) { return x.ratio.low < y.ratio.low; });
  if (widest->ratio.low < options.least_bound()) {
    out.judgement = Judgement::noisy;
    out.reason = fmt::format(
        "{} is {:.3f} of the reference, but it may be {:.3f} (95% interval), below {:g}: repeat it "
        "more often, or find the noise",
        widest->name, widest->ratio.ratio, widest->ratio.low, options.least_bound());
    return;
  }
  out.judgement = Judgement::pass;
  out.reason = fmt::format("{} is {:.3f} of the reference, at least {:.3f} (95% interval)",
                           worst->name, worst->ratio.ratio, widest->ratio.low);
}

std::vector<std::string> unequal_settings(const Workload& a, const Workload& b) {
  std::vector<std::string> out;
  for (const auto& [key, value] : a.settings) {
    const auto other = b.settings.find(key);
    // What only one side states cannot be compared.
    if (other != b.settings.end() && other->second != value) {
      out.push_back(fmt::format("{}: {}, in the reference {}", key, value, other->second));
    }
  }
  return out;
}

bool same_kind(const Workload& a, const Workload& b) {
  return a.benchmark == b.benchmark &&
         (a.accelerators == b.accelerators || !a.accelerators || !b.accelerators);
}

std::string system_text(const std::string& system) {
  return system.empty() ? "a machine that was not recorded" : system;
}

// The systems of the reference that a workload could be held against.
std::vector<std::string> systems_for(const Workload& workload,
                                     const std::vector<Workload>& reference) {
  std::vector<std::string> systems;
  for (const Workload& candidate : reference) {
    if (same_kind(workload, candidate)) systems.push_back(candidate.system);
  }
  std::sort(systems.begin(), systems.end());
  systems.erase(std::unique(systems.begin(), systems.end()), systems.end());
  return systems;
}

// The workload of the reference to hold this one against: of the same system where there are
// several, and with the fewest unequal settings.
const Workload* partner(const Workload& workload, const std::vector<Workload>& reference) {
  const Workload* best = nullptr;
  size_t fewest = 0;
  const bool several = systems_for(workload, reference).size() > 1;
  for (const Workload& candidate : reference) {
    if (!same_kind(workload, candidate)) continue;
    if (several && candidate.system != workload.system) continue;
    const size_t unequal = unequal_settings(workload, candidate).size();
    if (best != nullptr && unequal >= fewest) continue;
    best = &candidate;
    fewest = unequal;
  }
  return best;
}

std::string no_reference_reason(const Workload& workload, const std::vector<Workload>& reference) {
  if (auto systems = systems_for(workload, reference); !systems.empty()) {
    for (std::string& system : systems) system = system_text(system);
    return fmt::format("the reference holds {} systems of {}: {}; give the folder of one of them",
                       systems.size(), workload.name(), join(systems, "; "));
  }
  std::vector<std::string> names;
  names.reserve(reference.size());
  for (const Workload& other : reference) names.push_back(other.name());
  return fmt::format("the reference has no {}; it has {}", workload.name(), join(names, ", "));
}

WorkloadValidation validate_workload(const Workload& workload,
                                     const std::vector<Workload>& reference,
                                     const ValidationOptions& options) {
  WorkloadValidation out;
  out.name = workload.name();
  out.system = workload.system;
  out.unit = workload.unit;
  const auto results = valid_repeats(workload);
  out.result_repeats = static_cast<int64_t>(results.size());
  const Workload* other = partner(workload, reference);
  if (other == nullptr) {
    out.judgement = systems_for(workload, reference).empty() ? Judgement::no_reference
                                                             : Judgement::incomparable;
    out.reason = no_reference_reason(workload, reference);
    return out;
  }
  const auto base = valid_repeats(*other);
  out.reference_repeats = static_cast<int64_t>(base.size());
  bool own_invalid = false;
  for (const Workload* side : {&workload, other}) {
    for (const Repeat& repeat : side->repeats) {
      if (repeat.invalid.empty()) continue;
      out.invalid.push_back(repeat.name + ": " + repeat.invalid);
      own_invalid = own_invalid || side == &workload;
    }
  }
  out.unequal = unequal_settings(workload, *other);
  if (!out.unequal.empty()) {
    out.judgement = Judgement::incomparable;
    out.reason = "other hyperparameters: " + join(out.unequal, "; ");
    return out;
  }
  if (results.size() >= 2 && base.size() >= 2) {
    out.measures = {
        measure("throughput", results, base, [](const Repeat& r) { return r.steady_rate; }),
        measure("time", results, base, [](const Repeat& r) { return 1 / r.seconds_per_sample(); })};
    out.lost = lost_time(results, base);
  }
  if (own_invalid) {
    out.judgement = Judgement::invalid;
    out.reason = fmt::format("{} of {} repeats do not count",
                             workload.repeats.size() - results.size(), workload.repeats.size());
    return out;
  }
  const int64_t fewest = std::min(out.result_repeats, out.reference_repeats);
  if (fewest < kLeastRepeats) {
    out.judgement = Judgement::insufficient;
    out.reason =
        fmt::format("{} valid repeats{}; {} or more are needed", fewest,
                    out.result_repeats < kLeastRepeats ? "" : " in the reference", kLeastRepeats);
    return out;
  }
  judge(options, out);
  if (out.judgement != Judgement::pass) name_suspects(results, base, out);
  return out;
}

}  // namespace

bool Validation::all(Judgement judgement) const {
  return std::all_of(workloads.begin(), workloads.end(),
                     [&](const auto& w) { return w.judgement == judgement; });
}

bool Validation::any(Judgement judgement) const {
  return std::any_of(workloads.begin(), workloads.end(),
                     [&](const auto& w) { return w.judgement == judgement; });
}

Validation validate(const std::vector<Workload>& results, const std::vector<Workload>& reference,
                    const ValidationOptions& options) {
  Validation out;
  out.options = options;
  for (const Workload& workload : results) {
    out.workloads.push_back(validate_workload(workload, reference, options));
    if (systems_for(workload, results).size() > 1)
      out.workloads.back().name += " of " + system_text(workload.system);
  }
  for (const Workload& workload : reference) {
    const bool measured = std::any_of(results.begin(), results.end(), [&](const Workload& r) {
      return partner(r, reference) == &workload;
    });
    if (measured) continue;
    WorkloadValidation missing;
    missing.name = workload.name();
    missing.system = workload.system;
    if (systems_for(workload, reference).size() > 1)
      missing.name += " of " + system_text(workload.system);
    missing.unit = workload.unit;
    missing.judgement = Judgement::not_measured;
    missing.reference_repeats = static_cast<int64_t>(valid_repeats(workload).size());
    missing.reason = "the reference has this workload, the results do not";
    out.workloads.push_back(std::move(missing));
  }
  return out;
}

}  // namespace tutti::mlperf
