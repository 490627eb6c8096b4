#include "tutti/mlperf/compare_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tutti/report/gantt.h"
#include "tutti/report/html.h"

namespace tutti::mlperf {
namespace {

// The run whose time is the median of all.
const Timeline& typical(const std::vector<Timeline>& timelines) {
  std::vector<const Timeline*> order;
  for (const Timeline& line : timelines) order.push_back(&line);
  std::stable_sort(order.begin(), order.end(), [](const Timeline* x, const Timeline* y) {
    return x->total_seconds < y->total_seconds;
  });
  return *order[(order.size() - 1) / 2];
}

void add_lanes(const std::string& name, const ComparedResult& result, int color,
               report::Gantt& gantt) {
  const Timeline& line = typical(result.timelines);
  report::Lane training{name + ": training", {}, color};
  report::Lane evaluation{name + ": evaluation", {}, color + 1};
  for (const Stretch& stretch : line.stretches) {
    const double seconds = stretch.stop_seconds - stretch.start_seconds;
    const std::string label =
        stretch.evaluation ? fmt::format("evaluation, {:.1f} s", seconds)
                           : fmt::format("{:.0f} samples in {:.1f} s", stretch.samples, seconds);
    report::Lane& lane = stretch.evaluation ? evaluation : training;
    lane.spans.push_back({stretch.start_seconds, stretch.stop_seconds, label});
  }
  gantt.lanes.push_back(std::move(training));
  if (!evaluation.spans.empty()) gantt.lanes.push_back(std::move(evaluation));
}

std::string timelines_html(const Comparison& c) {
  report::Gantt gantt;
  gantt.id = "timelines";
  gantt.title = "From run_start to run_stop";
  gantt.subtitle = "the run of median time of each result; a is " + c.a.name + ", b is " + c.b.name;
  add_lanes("a", c.a, 0, gantt);
  add_lanes("b", c.b, 2, gantt);
  gantt.marks = {{typical(c.a.timelines).total_seconds, "a stops"},
                 {typical(c.b.timelines).total_seconds, "b stops"}};
  return report::draw(gantt);
}

std::string factors_html(const Comparison& c) {
  report::Table table;
  table.caption = "Factors that multiply to the ratio of minutes";
  table.columns = {{"Factor", false, true}, {"Times", true, true}, {"Share", true, true}};
  const double whole = std::log(c.ratio);
  for (const auto& [name, factor] : named_factors(c.factors)) {
    table.rows.push_back(
        {name, fmt::format("{:.4f}", factor),
         whole == 0 ? "–" : fmt::format("{:.0f}%", 100 * std::log(factor) / whole + 0.0)});
  }
  table.rows.push_back({"all", fmt::format("{:.4f}", c.ratio), "100%"});
  return report::html_table(table);
}

std::string results_html(const Comparison& c) {
  report::Table table;
  table.caption = "Means over the counted runs";
  table.columns = {{"Mean of the counted runs", false, false},
                   {"a", true, true},
                   {"b", true, true},
                   {"a / b", true, true}};
  const auto row = [&](const char* name, double a, double b, int digits) {
    table.rows.push_back({name, fmt::format("{:.{}f}", a, digits),
                          fmt::format("{:.{}f}", b, digits),
                          b == 0 ? "–" : fmt::format("{:.3f}", a / b)});
  };
  row("minutes", c.a.minutes, c.b.minutes, 3);
  row("raw minutes", c.a.raw_minutes, c.b.raw_minutes, 3);
  row("accelerators", c.a.accelerators, c.b.accelerators, 0);
  row(c.a.from_start_to_end ? "samples per second, start to end" : "steady samples per second",
      c.a.samples_per_second, c.b.samples_per_second, 1);
  row("samples to target", c.a.samples, c.b.samples, 0);
  if (!c.a.from_start_to_end) {
    row("evaluations", c.a.evaluations, c.b.evaluations, 1);
    row("seconds of evaluation", c.a.evaluation_seconds, c.b.evaluation_seconds, 1);
    row("seconds of start-up and slow steps", c.a.startup_seconds, c.b.startup_seconds, 1);
  }
  return report::html_table(table);
}

std::string settings_html(const Comparison& c) {
  report::Table table;
  table.caption = "Settings that differ";
  table.columns = {{"Setting", false, true}, {"a", false, false}, {"b", false, false}};
  const auto shown = [](const Json& value) {
    return value.is_null() ? std::string("–") : dump_json(value);
  };
  for (const SettingDifference& s : c.settings) {
    table.rows.push_back({s.key, shown(s.a), shown(s.b)});
  }
  return report::html_table(table);
}

report::Tile order_tile(const char* name, const OrderTest& test) {
  return {name, fmt::format("{:.3f}", test.ratio),
          fmt::format("95% from {:.3f} to {:.3f}; {}", test.low, test.high,
                      test.least_chance >= kSignificant
                          ? std::string("too few runs to test")
                          : fmt::format("by chance with probability {:.2g}", test.chance))};
}

}  // namespace

report::Page comparison_page(const Comparison& c) {
  report::Page page;
  page.kind = "MLPerf comparison";
  page.title = c.a.name + " and " + c.b.name;
  page.lead = c.verdict;
  page.notes = c.notes;
  page.tiles = {{"a: minutes", fmt::format("{:.3f}", c.a.minutes), c.a.name},
                {"b: minutes", fmt::format("{:.3f}", c.b.minutes), c.b.name}};
  if (c.order_tested) {
    page.tiles.push_back(order_tile("samples, a to b", c.samples_order));
    page.tiles.push_back(order_tile("minutes, a to b", c.minutes_order));
  }
  page.sections = {{"factors", "Why", factors_html(c)}};
  if (!c.a.timelines.empty() && !c.b.timelines.empty()) {
    page.sections.push_back({"time", "Where the time went", timelines_html(c)});
  }
  page.sections.push_back({"results", "Results", results_html(c)});
  if (!c.settings.empty()) page.sections.push_back({"settings", "Settings", settings_html(c)});
  page.footer = "tutti mlperf compare";
  return page;
}

}  // namespace tutti::mlperf
