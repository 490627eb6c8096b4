#include "tutti/mlperf/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/yaml_list.h"

namespace tutti::mlperf {
namespace {

std::string result_name(const std::string& round, const std::string& who, double accelerators,
                        const std::string& chip) {
  std::string name = (round.empty() ? "no round" : round) + " " + who;
  if (accelerators > 0) name += fmt::format(" ({:.0f} {})", accelerators, chip);
  return name;
}

ComparedResult summarise(const Score& score) {
  if (!score.minutes || !score.raw_minutes) {
    fail(ErrorKind::usage, "{}: no score to compare; see 'tutti mlperf score'", score.path);
  }
  ComparedResult out;
  out.minutes = *score.minutes;
  out.raw_minutes = *score.raw_minutes;
  out.scale = score.scale;
  if (const auto accelerators = score.system.accelerators()) {
    out.accelerators = static_cast<double>(*accelerators);
    out.accelerators_known = true;
  }
  const std::string who = score.system.submitter.empty() ? score.path : score.system.submitter;
  out.chip = score.system.accelerator;
  out.name = result_name(score.round, who, out.accelerators_known ? out.accelerators : 0, out.chip);
  double counted = 0;
  for (const ScoredRun& run : score.runs) {
    if (!run.timeline) continue;
    Timeline line = *run.timeline;
    if (!(line.steady_samples_per_second > 0)) {
      fail(ErrorKind::usage, "{}: no stretch of training with samples and time", run.file);
    }
    out.evaluations_timed = out.evaluations_timed && line.evaluations_timed;
    if (run.counted) {
      counted += 1;
      out.samples += line.samples;
      out.training_seconds += line.training_seconds;
      out.evaluation_seconds += line.evaluation_seconds;
      out.startup_seconds += line.startup_seconds;
      out.evaluations += line.evaluations;
      out.step_seconds += line.step_seconds;
    }
    out.timelines.push_back(std::move(line));
  }
  for (double* sum : {&out.samples, &out.training_seconds, &out.evaluation_seconds,
                      &out.startup_seconds, &out.evaluations, &out.step_seconds}) {
    *sum /= counted;
  }
  out.samples_per_second = out.samples / out.training_seconds;
  return out;
}

Factors split(const ComparedResult& a, const ComparedResult& b) {
  const double total = logarithmic_mean(a.raw_minutes * 60, b.raw_minutes * 60);
  const double weight = logarithmic_mean(a.training_seconds, b.training_seconds) / total;
  const double rate_a = a.samples_per_second / a.accelerators;
  const double rate_b = b.samples_per_second / b.accelerators;
  Factors factors;
  factors.throughput = std::exp(-weight * std::log(rate_a / rate_b));
  factors.accelerators = std::exp(-weight * std::log(a.accelerators / b.accelerators));
  factors.samples_to_target = std::exp(weight * std::log(a.samples / b.samples));
  factors.evaluation = std::exp((a.evaluation_seconds - b.evaluation_seconds) / total);
  factors.startup = std::exp((a.startup_seconds - b.startup_seconds) / total);
  factors.scaling = a.scale / b.scale;
  return factors;
}

std::vector<SettingDifference> differing_settings(const ComparedSide& a, const ComparedSide& b) {
  const auto value = [](const auto& all, const std::string& key) {
    for (const auto& [name, setting] : all) {
      if (name == key) return setting;
    }
    return Json(nullptr);
  };
  std::vector<SettingDifference> differences;
  for (const auto& [key, setting] : a.settings) {
    const Json other = value(b.settings, key);
    if (other != setting) differences.push_back({key, setting, other});
  }
  for (const auto& [key, setting] : b.settings) {
    if (value(a.settings, key).is_null()) differences.push_back({key, nullptr, setting});
  }
  return differences;
}

// What the parts of the time cannot say.
std::vector<std::string> notes_on(const ComparedResult& result) {
  std::vector<std::string> notes;
  if (!result.evaluations_timed) {
    notes.push_back(result.name + " does not log when evaluations start: they count as training");
  }
  const bool hidden = std::any_of(result.timelines.begin(), result.timelines.end(),
                                  [](const Timeline& line) { return line.startup_hidden; });
  if (hidden) {
    notes.push_back(result.name +
                    " logs no step times, and one stretch of training holds half of its samples or "
                    "more: start-up cannot be distinguished from steady steps");
  }
  return notes;
}

void count_from_start_to_end(ComparedResult& result) {
  result.from_start_to_end = true;
  result.training_seconds = 60 * result.raw_minutes;
  result.samples_per_second = result.samples / result.training_seconds;
  result.evaluation_seconds = 0;
  result.startup_seconds = 0;
}

}  // namespace

double Factors::product() const {
  return throughput * accelerators * samples_to_target * evaluation * startup * scaling;
}

std::vector<std::pair<std::string, double>> named_factors(const Factors& f) {
  return {{"throughput per accelerator", f.throughput}, {"number of accelerators", f.accelerators},
          {"samples to target", f.samples_to_target},   {"evaluation", f.evaluation},
          {"start-up and slow steps", f.startup},       {"scaling to the reference", f.scaling}};
}

ComparedSide side_of(const Score& score) {
  ComparedSide side;
  side.result = summarise(score);
  side.benchmark = score.benchmark;
  for (const std::string& note : score.notes) side.notes.push_back(side.result.name + ": " + note);
  const auto more = notes_on(side.result);
  side.notes.insert(side.notes.end(), more.begin(), more.end());
  for (const ScoredRun& run : score.runs) {
    if (!run.converged) continue;
    if (side.samples.empty()) side.settings = run.run.settings;
    side.samples.push_back(run.samples_to_target);
    side.minutes.push_back(run.minutes);
  }
  return side;
}

ComparedSide side_of(const catalog::PublishedResult& row) {
  ComparedSide side;
  side.benchmark = row.benchmark;
  ComparedResult& result = side.result;
  result.chip = row.accelerator;
  result.accelerators = static_cast<double>(row.accelerators);
  result.accelerators_known = true;
  result.name = result_name(row.round, row.submitter, result.accelerators, row.accelerator);
  result.minutes = row.minutes;
  result.raw_minutes = row.raw_minutes;
  result.scale = row.minutes / row.raw_minutes;
  result.samples = row.samples_to_target;
  count_from_start_to_end(result);
  side.notes.push_back(result.name +
                       " is a row of published results: throughput of both is from start to end, "
                       "evaluations and start-up included");
  if (row.global_batch_samples > 0) {
    side.settings.emplace_back("global_batch_size", row.global_batch_samples);
  }
  return side;
}

bool same_chip(const ComparedResult& a, const ComparedResult& b) {
  const std::string x = catalog::plain_name(a.chip);
  const std::string y = catalog::plain_name(b.chip);
  if (x.empty() || y.empty()) return false;
  return x.find(y) != std::string::npos || y.find(x) != std::string::npos;
}

Comparison compare_sides(ComparedSide a, ComparedSide b) {
  if (a.benchmark != b.benchmark) {
    fail(ErrorKind::usage, "{} is of {}, {} of {}: only results of one benchmark compare",
         a.result.name, a.benchmark, b.result.name, b.benchmark);
  }
  Comparison c;
  c.settings = differing_settings(a, b);
  const bool rows = a.result.from_start_to_end || b.result.from_start_to_end;
  if (rows) {
    // What only logs state does not count as a difference between the results.
    c.settings.erase(
        std::remove_if(c.settings.begin(), c.settings.end(),
                       [](const SettingDifference& s) { return s.a.is_null() || s.b.is_null(); }),
        c.settings.end());
  }
  c.notes = std::move(a.notes);
  std::move(b.notes.begin(), b.notes.end(), std::back_inserter(c.notes));
  c.a = std::move(a.result);
  c.b = std::move(b.result);
  if (rows) {
    count_from_start_to_end(c.a);
    count_from_start_to_end(c.b);
  }
  if (!c.a.accelerators_known || !c.b.accelerators_known) {
    c.a.accelerators = c.b.accelerators = 1;
    c.notes.emplace_back(
        "without system descriptions of both, throughput is that of all accelerators together");
  }
  c.ratio = c.a.minutes / c.b.minutes;
  c.factors = split(c.a, c.b);
  c.order_tested = !a.minutes.empty() && !b.minutes.empty();
  if (c.order_tested) {
    c.samples_order = test_order(a.samples, b.samples);
    c.minutes_order = test_order(a.minutes, b.minutes);
  }
  c.verdict = verdict_of(c);
  return c;
}

Comparison compare_results(const Score& a, const Score& b) {
  return compare_sides(side_of(a), side_of(b));
}

}  // namespace tutti::mlperf
