#include <fmt/format.h>

#include "tutti/base/text.h"
#include "tutti/mlperf/validate.h"

namespace tutti::mlperf {
namespace {

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

// Rates of any size: 81222, 12.4, 0.0312.
std::string rate(double value) {
  return fmt::format("{:.{}f}", value, value >= 1000 ? 0 : value >= 10 ? 1 : 4);
}

Json measure_json(const Measure& m) {
  return {{"measure", m.name},
          {"result", m.result},
          {"reference", m.reference},
          {"ratio", m.ratio.ratio},
          {"interval_95", {m.ratio.low, m.ratio.high}},
          {"result_variation", m.result_variation},
          {"reference_variation", m.reference_variation}};
}

Json workload_json(const WorkloadValidation& w) {
  Json measures = Json::array();
  for (const Measure& m : w.measures) measures.push_back(measure_json(m));
  Json lost = Json::array();
  for (const LostTime& l : w.lost) {
    lost.push_back({{"part", l.part}, {"share", l.share}, {"factor", l.factor}});
  }
  return {{"workload", w.name},
          {"system", w.system},
          {"verdict", judgement_name(w.judgement)},
          {"reason", w.reason},
          {"repeats", w.result_repeats},
          {"reference_repeats", w.reference_repeats},
          {"unit", w.unit + " per second"},
          {"measures", std::move(measures)},
          {"lost_time", std::move(lost)},
          {"suspects", w.suspects},
          {"unequal_settings", w.unequal},
          {"invalid_repeats", w.invalid}};
}

}  // namespace

const char* judgement_name(Judgement judgement) {
  switch (judgement) {
    case Judgement::pass: return "pass";
    case Judgement::short_of: return "falls short";
    case Judgement::noisy: return "too noisy";
    case Judgement::insufficient: return "insufficient";
    case Judgement::invalid: return "invalid";
    case Judgement::incomparable: return "incomparable";
    case Judgement::no_reference: return "no reference";
    case Judgement::not_measured: break;
  }
  return "not measured";
}

std::string rule_text(const ValidationOptions& options) {
  return fmt::format(
      "on every workload of the reference, throughput and time at {:g} of it or more, and their "
      "95% "
      "intervals (Welch's t of logarithms) not below {:g}; {} repeats or more of each",
      options.threshold, options.least_bound(), kLeastRepeats);
}

Json to_json(const Validation& validation) {
  Json workloads = Json::array();
  for (const WorkloadValidation& w : validation.workloads) workloads.push_back(workload_json(w));
  return {{"pass", validation.all(Judgement::pass)},
          {"falls_short", validation.any(Judgement::short_of)},
          {"threshold", validation.options.threshold},
          {"strict", validation.options.strict},
          {"rule", rule_text(validation.options)},
          {"workloads", std::move(workloads)}};
}

std::string format_validation(const Validation& validation) {
  std::vector<std::vector<std::string>> rows = {{"workload", "measure", "result", "reference",
                                                 "ratio", "95% interval", "varies", "ref. varies",
                                                 "repeats", "verdict"}};
  for (const WorkloadValidation& w : validation.workloads) {
    const std::string repeats = fmt::format("{} / {}", w.result_repeats, w.reference_repeats);
    if (w.measures.empty()) {
      rows.push_back(
          {w.name, "-", "-", "-", "-", "-", "-", "-", repeats, judgement_name(w.judgement)});
    }
    for (const Measure& m : w.measures) {
      const bool first = &m == w.measures.data();
      rows.push_back({first ? w.name : "", fmt::format("{}, {}/s", m.name, w.unit), rate(m.result),
                      rate(m.reference), fmt::format("{:.3f}", m.ratio.ratio),
                      fmt::format("{:.3f} to {:.3f}", m.ratio.low, m.ratio.high),
                      percent(m.result_variation), percent(m.reference_variation),
                      first ? repeats : "", first ? judgement_name(w.judgement) : ""});
    }
  }
  std::string text = "rule: " + rule_text(validation.options) + "\n\n" + format_table(rows);
  for (const WorkloadValidation& w : validation.workloads) {
    text += fmt::format("\n{}: {}: {}\n", w.name, judgement_name(w.judgement), w.reason);
    for (const std::string& line : w.invalid) text += "  does not count: " + line + "\n";
    if (w.judgement == Judgement::pass) continue;
    if (!w.suspects.empty()) {
      for (const LostTime& l : w.lost) {
        text += fmt::format("  {:<15} {:+6.1f}% of the reference's time, factor {:.4f}\n", l.part,
                            100 * l.share, l.factor);
      }
    }
    for (const std::string& suspect : w.suspects) text += "  look at " + suspect + "\n";
  }
  return text + fmt::format("\n{}\n", validation.all(Judgement::pass)       ? "pass"
                                      : validation.any(Judgement::short_of) ? "falls short"
                                                                            : "no verdict");
}

}  // namespace tutti::mlperf
