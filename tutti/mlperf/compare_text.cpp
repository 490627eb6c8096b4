// Verdict, JSON and tables of a comparison.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/mlperf/compare.h"

namespace tutti::mlperf {
namespace {

// 1.21: "21%"
std::string change_text(double factor) {
  return fmt::format("{:.1f}%", 100 * (std::max(factor, 1 / factor) - 1));
}

// Rates within this are equal.
constexpr double kEqual = 0.03;
// Causes: at least a tenth of the whole.
constexpr double kCause = 0.1;

double rate_each(const ComparedResult& result) {
  return result.samples_per_second / result.accelerators;
}

// Factors that make up the ratio (direction 1), or that work against it (-1), largest first.
std::vector<std::string> causes(const Comparison& c, double direction) {
  std::vector<std::pair<std::string, double>> found;
  for (const auto& [name, factor] : named_factors(c.factors)) {
    if (direction * std::log(factor) / std::log(c.ratio) >= kCause)
      found.emplace_back(name, factor);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& x, const auto& y) {
    return std::abs(std::log(x.second)) > std::abs(std::log(y.second));
  });
  std::vector<std::string> parts;
  parts.reserve(found.size());
  for (const auto& [name, factor] : found) {
    parts.push_back(fmt::format("{} ({})", name, change_text(factor)));
  }
  return parts;
}

// Results of one time may still differ in what it is made of.
std::string same_time_text(const Comparison& c) {
  std::vector<std::string> against_a;
  std::vector<std::string> against_b;
  for (const auto& [name, factor] : named_factors(c.factors)) {
    if (std::abs(std::log(factor)) < std::log(1 + kEqual)) continue;
    (factor > 1 ? against_a : against_b)
        .push_back(fmt::format("{} ({})", name, change_text(factor)));
  }
  std::string text = fmt::format("{} and {} take the same time", c.a.name, c.b.name);
  if (!against_a.empty()) text += "; the first loses by " + join(against_a, ", ");
  if (!against_b.empty()) {
    text += against_a.empty() ? "; the second loses by " : ", the second by ";
    text += join(against_b, ", ");
  }
  return text + ".";
}

// What the throughput of one accelerator says.
std::string accelerator_text(const Comparison& c) {
  const double ratio = rate_each(c.a) / rate_each(c.b);
  const bool equal = std::abs(ratio - 1) < kEqual;
  const std::string rate =
      c.a.from_start_to_end ? "throughput from start to end" : "steady throughput";
  if (same_chip(c.a, c.b)) {
    if (c.a.accelerators == c.b.accelerators) {
      return equal ? "; " + rate + " is equal within 3%" : "; the accelerators are the same";
    }
    const bool a_larger = c.a.accelerators > c.b.accelerators;
    return fmt::format(
        "; on the same chip, each of {:.0f} does {:.1f}% of the {} of each of {:.0f}",
        std::max(c.a.accelerators, c.b.accelerators), 100 * (a_larger ? ratio : 1 / ratio), rate,
        std::min(c.a.accelerators, c.b.accelerators));
  }
  if (equal) {
    return "; " + rate +
           " per accelerator is equal within 3%, so the kind of accelerator is not the cause";
  }
  if (std::log(c.factors.throughput) / std::log(c.ratio) < kCause) {
    return fmt::format("; the slower result has the faster accelerators ({} in time)",
                       change_text(c.factors.throughput));
  }
  return {};
}

std::string noise_text(const Comparison& c) {
  const OrderTest& test = c.minutes_order;
  if (!c.order_tested) {
    return "; without the runs of both, noise between runs cannot be tested";
  }
  if (test.least_chance >= kSignificant) {
    return "; too few runs to test whether noise between them puts the results so far apart";
  }
  return fmt::format("; noise between runs would put them so far apart with probability {:.2g}{}",
                     test.chance, test.chance < kSignificant ? "" : ", so it is not excluded");
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
          {"evaluations", r.evaluations},
          {"step_seconds", r.step_seconds > 0 ? Json(r.step_seconds) : Json(nullptr)},
          {"from_start_to_end", r.from_start_to_end}};
}

Json order_json(const OrderTest& test) {
  return {{"ratio", test.ratio},
          {"interval_95", {test.low, test.high}},
          {"chance", test.chance},
          {"least_chance", test.least_chance},
          {"labellings", test.labellings}};
}

}  // namespace

std::string verdict_of(const Comparison& c) {
  const bool a_slower = c.ratio >= 1;
  const ComparedResult& slow = a_slower ? c.a : c.b;
  const ComparedResult& fast = a_slower ? c.b : c.a;
  const bool same = std::abs(std::log(c.ratio)) < 1e-6;
  const std::vector<std::string> parts = same ? std::vector<std::string>{} : causes(c, 1);
  if (parts.empty()) return same_time_text(c);
  std::string text = fmt::format("{} takes {} longer than {}, by {}", slow.name,
                                 change_text(c.ratio), fast.name, join(parts, ", "));
  if (const auto against = causes(c, -1); !against.empty()) {
    text += "; against that work " + join(against, ", ");
  }
  return text + accelerator_text(c) + noise_text(c) + ".";
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
          {"samples_order", c.order_tested ? order_json(c.samples_order) : Json(nullptr)},
          {"minutes_order", c.order_tested ? order_json(c.minutes_order) : Json(nullptr)},
          {"settings", std::move(settings)},
          {"notes", c.notes}};
}

std::string format_comparison(const Comparison& c) {
  const auto row = [&](const char* name, double a, double b, int digits) {
    return std::vector<std::string>{name, fmt::format("{:.{}f}", a, digits),
                                    fmt::format("{:.{}f}", b, digits),
                                    b == 0 ? "-" : fmt::format("{:.3f}", a / b)};
  };
  std::vector<std::vector<std::string>> rows = {
      {"mean of the counted runs", "a", "b", "a / b"},
      row("minutes", c.a.minutes, c.b.minutes, 3),
      row("raw minutes", c.a.raw_minutes, c.b.raw_minutes, 3),
      row("accelerators", c.a.accelerators, c.b.accelerators, 0),
      row(c.a.from_start_to_end ? "samples/s, start to end" : "steady samples/s",
          c.a.samples_per_second, c.b.samples_per_second, 1),
      row("samples to target", c.a.samples, c.b.samples, 0)};
  if (!c.a.from_start_to_end) {
    rows.push_back(row("evaluations", c.a.evaluations, c.b.evaluations, 1));
    rows.push_back(row("seconds of evaluation", c.a.evaluation_seconds, c.b.evaluation_seconds, 1));
    rows.push_back(
        row("seconds of start-up, slow steps", c.a.startup_seconds, c.b.startup_seconds, 1));
  }
  std::string text = fmt::format("a  {}\nb  {}\n\n", c.a.name, c.b.name) + format_table(rows);
  rows = {{"factor of the ratio", "times", "share"}};
  for (const auto& [name, factor] : named_factors(c.factors)) {
    const double whole = std::log(c.ratio);
    rows.push_back(
        {name, fmt::format("{:.4f}", factor),
         whole == 0 ? "-" : fmt::format("{:.0f}%", 100 * std::log(factor) / whole + 0.0)});
  }
  rows.push_back({"all", fmt::format("{:.4f}", c.ratio), "100%"});
  text += "\n" + format_table(rows);
  const auto order = [](const char* what, const OrderTest& test) {
    const std::string chance = test.least_chance >= kSignificant
                                   ? "too few runs to test"
                                   : fmt::format("by chance with probability {:.2g}", test.chance);
    return fmt::format("{}: {:.3f} times, 95% interval {:.3f} to {:.3f}; {}\n", what, test.ratio,
                       test.low, test.high, chance);
  };
  if (c.order_tested) {
    text += "\nMeans over all converged runs, a to b:\n" +
            order("samples to target", c.samples_order) + order("raw minutes", c.minutes_order);
  }
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
