#include "tutti/mlperf/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

ComparedResult summarise(const Score& score, double progress_per_sample) {
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
  out.name = out.accelerators_known
                 ? fmt::format("{} ({:.0f} {})", who, out.accelerators, score.system.accelerator)
                 : who;
  double counted = 0;
  for (const ScoredRun& run : score.runs) {
    if (!run.converged) continue;
    Timeline line = timeline_of(run.run, progress_per_sample);
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
    }
    out.timelines.push_back(std::move(line));
  }
  for (double* sum : {&out.samples, &out.training_seconds, &out.evaluation_seconds,
                      &out.startup_seconds, &out.evaluations}) {
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

std::vector<SettingDifference> differing_settings(const Score& a, const Score& b) {
  const auto settings = [](const Score& score) {
    for (const ScoredRun& run : score.runs) {
      if (run.converged) return run.run.settings;
    }
    return std::vector<std::pair<std::string, Json>>{};
  };
  const auto of_a = settings(a);
  const auto of_b = settings(b);
  const auto value = [](const auto& all, const std::string& key) {
    for (const auto& [name, setting] : all) {
      if (name == key) return setting;
    }
    return Json(nullptr);
  };
  std::vector<SettingDifference> differences;
  for (const auto& [key, setting] : of_a) {
    const Json other = value(of_b, key);
    if (other != setting) differences.push_back({key, setting, other});
  }
  for (const auto& [key, setting] : of_b) {
    if (value(of_a, key).is_null()) differences.push_back({key, nullptr, setting});
  }
  return differences;
}

// 1.21: "21%"
std::string change_text(double factor) {
  return fmt::format("{:.1f}%", 100 * (std::max(factor, 1 / factor) - 1));
}

std::string sentence(const Comparison& c) {
  const bool a_slower = c.ratio >= 1;
  const ComparedResult& slow = a_slower ? c.a : c.b;
  const ComparedResult& fast = a_slower ? c.b : c.a;
  const double whole = std::log(c.ratio);
  std::vector<std::pair<std::string, double>> causes;
  for (const auto& [name, factor] : named_factors(c.factors)) {
    // Causes: at least a tenth of the whole, in its direction.
    if (std::log(factor) / whole >= 0.1) causes.emplace_back(name, factor);
  }
  std::stable_sort(causes.begin(), causes.end(), [](const auto& x, const auto& y) {
    return std::abs(std::log(x.second)) > std::abs(std::log(y.second));
  });
  std::vector<std::string> parts;
  parts.reserve(causes.size());
  for (const auto& [name, factor] : causes) {
    parts.push_back(fmt::format("{} ({})", name, change_text(factor)));
  }
  constexpr double kEqual = 0.03;
  if (std::abs(whole) < 1e-6 || parts.empty()) {
    return fmt::format("{} and {} take the same time.", slow.name, fast.name);
  }
  const double throughput = std::log(c.factors.throughput);
  const bool equal = std::abs((c.a.samples_per_second / c.a.accelerators) /
                                  (c.b.samples_per_second / c.b.accelerators) -
                              1) < kEqual;
  std::string text = fmt::format("{} takes {} longer than {}, by {}", slow.name,
                                 change_text(c.ratio), fast.name, join(parts, ", "));
  if (equal) {
    text +=
        "; steady throughput per accelerator is equal within 3%, so the kind of "
        "accelerator is not the cause";
  } else if (throughput / whole < 0.1) {
    text += fmt::format("; the slower result has the faster accelerators ({} in time)",
                        change_text(c.factors.throughput));
  }
  const double chance = c.minutes_order.chance;
  text += fmt::format("; noise between runs would put them so far apart with probability {:.2g}{}",
                      chance, chance < 0.05 ? "" : ", so it is not excluded");
  return text + ".";
}

Json result_json(const ComparedResult& r) {
  return {{"name", r.name},
          {"minutes", r.minutes},
          {"raw_minutes", r.raw_minutes},
          {"scale", r.scale},
          {"accelerators", r.accelerators_known ? Json(r.accelerators) : Json(nullptr)},
          {"samples_to_target", r.samples},
          {"steady_samples_per_second", r.samples_per_second},
          {"training_seconds", r.training_seconds},
          {"evaluation_seconds", r.evaluation_seconds},
          {"startup_seconds", r.startup_seconds},
          {"evaluations", r.evaluations}};
}

Json order_json(const OrderTest& test) {
  return {{"ratio", test.ratio},
          {"interval_95", {test.low, test.high}},
          {"chance", test.chance},
          {"labellings", test.labellings}};
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

Comparison compare_results(const Score& a, const Score& b, const catalog::Benchmark& benchmark) {
  if (a.benchmark != b.benchmark) {
    fail(ErrorKind::usage, "{} is of {}, {} of {}: only results of one benchmark compare", a.path,
         a.benchmark, b.path, b.benchmark);
  }
  const double per_sample = benchmark.logged_progress == catalog::Progress::tokens
                                ? static_cast<double>(benchmark.sequence_tokens)
                                : 1.0;
  Comparison c;
  c.a = summarise(a, per_sample);
  c.b = summarise(b, per_sample);
  if (!c.a.accelerators_known || !c.b.accelerators_known) {
    c.a.accelerators = c.b.accelerators = 1;
    c.notes.emplace_back(
        "without system descriptions of both, throughput is that of all accelerators together");
  }
  for (const ComparedResult* result : {&c.a, &c.b}) {
    if (!result->evaluations_timed) {
      c.notes.push_back(result->name +
                        " does not log when evaluations start: they count as training");
    }
  }
  c.ratio = c.a.minutes / c.b.minutes;
  c.factors = split(c.a, c.b);
  const auto values = [](const Score& score, double ScoredRun::*member) {
    std::vector<double> all;
    for (const ScoredRun& run : score.runs) {
      if (run.converged) all.push_back(run.*member);
    }
    return all;
  };
  c.samples_order = test_order(values(a, &ScoredRun::samples_to_target),
                               values(b, &ScoredRun::samples_to_target));
  c.minutes_order = test_order(values(a, &ScoredRun::minutes), values(b, &ScoredRun::minutes));
  c.settings = differing_settings(a, b);
  c.verdict = sentence(c);
  return c;
}

Json to_json(const Comparison& c) {
  const Factors& f = c.factors;
  Json settings = Json::array();
  for (const SettingDifference& s : c.settings) {
    settings.push_back({{"key", s.key}, {"a", s.a}, {"b", s.b}});
  }
  return {{"ratio", c.ratio},
          {"factors",
           {{"throughput", f.throughput},
            {"accelerators", f.accelerators},
            {"samples_to_target", f.samples_to_target},
            {"evaluation", f.evaluation},
            {"startup", f.startup},
            {"scaling", f.scaling}}},
          {"verdict", c.verdict},
          {"a", result_json(c.a)},
          {"b", result_json(c.b)},
          {"samples_order", order_json(c.samples_order)},
          {"minutes_order", order_json(c.minutes_order)},
          {"settings", std::move(settings)},
          {"notes", c.notes}};
}

std::string format_comparison(const Comparison& c) {
  const auto row = [&](const char* name, double a, double b, int digits) {
    return std::vector<std::string>{name, fmt::format("{:.{}f}", a, digits),
                                    fmt::format("{:.{}f}", b, digits),
                                    fmt::format("{:.3f}", a / b)};
  };
  std::string text = fmt::format("a  {}\nb  {}\n\n", c.a.name, c.b.name);
  text += format_table(
      {{"mean of the counted runs", "a", "b", "a / b"},
       row("minutes", c.a.minutes, c.b.minutes, 3),
       row("raw minutes", c.a.raw_minutes, c.b.raw_minutes, 3),
       row("accelerators", c.a.accelerators, c.b.accelerators, 0),
       row("steady samples/s", c.a.samples_per_second, c.b.samples_per_second, 1),
       row("samples to target", c.a.samples, c.b.samples, 0),
       row("evaluations", c.a.evaluations, c.b.evaluations, 1),
       row("seconds of evaluation", c.a.evaluation_seconds, c.b.evaluation_seconds, 1),
       row("seconds of start-up, slow steps", c.a.startup_seconds, c.b.startup_seconds, 1)});
  std::vector<std::vector<std::string>> rows = {{"factor of the ratio", "times", "share"}};
  for (const auto& [name, factor] : named_factors(c.factors)) {
    const double whole = std::log(c.ratio);
    rows.push_back({name, fmt::format("{:.4f}", factor),
                    whole == 0 ? "-" : fmt::format("{:.0f}%", 100 * std::log(factor) / whole)});
  }
  rows.push_back({"all", fmt::format("{:.4f}", c.ratio), "100%"});
  text += "\n" + format_table(rows);
  const auto order = [](const char* what, const OrderTest& test) {
    return fmt::format(
        "{}: {:.3f} times, 95% interval {:.3f} to {:.3f}; by chance with "
        "probability {:.2g}\n",
        what, test.ratio, test.low, test.high, test.chance);
  };
  text += "\nMeans over all converged runs, a to b:\n" +
          order("samples to target", c.samples_order) + order("raw minutes", c.minutes_order);
  if (!c.settings.empty()) {
    rows = {{"setting", "a", "b"}};
    const auto shown = [](const Json& value) {
      return value.is_null() ? std::string("-") : dump_json(value);
    };
    for (const SettingDifference& s : c.settings) {
      if (s.key != "seed") rows.push_back({s.key, shown(s.a), shown(s.b)});
    }
    text += "\n" + format_table(rows);
  }
  for (const std::string& note : c.notes) text += "note: " + note + "\n";
  return text + "\n" + c.verdict + "\n";
}

}  // namespace tutti::mlperf
