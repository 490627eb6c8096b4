// Budgets on the page: what is left of each, how it came to that, and how long it lasts.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tutti/base/units.h"
#include "tutti/control/jobs/amounts.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/people/visible.h"
#include "tutti/control/web/sections.h"
#include "tutti/report/html.h"
#include "tutti/report/line_chart.h"

namespace tutti::control {
namespace {

constexpr int kPoints = 120;
constexpr int64_t kMostLaunches = 1000;
constexpr int64_t kProjects = 20;  // shown at a time
constexpr int64_t kRedrawMs = 60'000;

// What all of them together cost per hour now.
Rate present_rate(const std::vector<Launch>& launches) {
  Rate sum;
  for (const Launch& launch : launches) {
    if (launch.ended_ms) continue;
    sum.nodes += launch.rate.nodes;
    sum.cores += launch.rate.cores;
    sum.gpus += launch.rate.gpus;
    sum.micro_usd_per_hour += launch.rate.micro_usd_per_hour;
    sum.milliwatts += launch.rate.milliwatts;
  }
  return sum;
}

// A launch spends evenly while it runs.
int64_t spent_until(const std::vector<Launch>& launches, const BudgetPart& part, int64_t time_ms) {
  int64_t sum = 0;
  for (const Launch& launch : launches) {
    const int64_t ran = std::clamp<int64_t>(time_ms - launch.started_ms, 0, launch.elapsed_ms);
    sum += spend_of(launch.rate, ran).*part.spent;
  }
  return sum;
}

std::string label_of(const BudgetPart& part) {
  const std::string_view name = part.name;
  if (name == "usd") return "USD";
  if (name == "kwh") return "kWh";
  std::string label(name);  // node_hours
  std::replace(label.begin(), label.end(), '_', '-');
  return label;
}

std::string bars(const Budget& budget, const Spend& spent) {
  std::string out = "<table class=\"bars\">";
  int color = 0;
  for (const BudgetPart& part : budget_parts()) {
    const std::optional<int64_t>& limit = budget.*part.limit;
    if (!limit) continue;
    const int64_t left = std::max<int64_t>(0, *limit - spent.*part.spent);
    const double share = *limit == 0 ? 0 : static_cast<double>(left) / static_cast<double>(*limit);
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"track\"><span class=\"fill c{}\" "
        "style=\"width:{:.2f}%\"></span></td><td class=\"n\">{:.4g} of {:.4g} left</td>"
        "<td class=\"n share\">{:.1f}%</td></tr>\n",
        label_of(part), color++ % report::kColors, 100 * share, static_cast<double>(left) / kMicro,
        static_cast<double>(*limit) / kMicro, 100 * share);
  }
  return out + "</table>\n";
}

std::string burn_down(const Project& project, const std::vector<Launch>& launches,
                      const std::string& id, int64_t now_ms) {
  int64_t first = now_ms;
  for (const Launch& launch : launches) first = std::min(first, launch.started_ms);
  // The same drawing for a while: pages that have it need not get it again.
  if (now_ms - first > 10 * kRedrawMs) now_ms -= now_ms % kRedrawMs;
  if (first >= now_ms) return {};
  report::LineChart chart;
  chart.id = id;
  chart.title = "Remaining budget";
  chart.subtitle = "From the project's first launch until now.";
  chart.x_name = "time";
  chart.x_quantity = report::Quantity::seconds;
  chart.y_quantity = report::Quantity::ratio;
  chart.from_zero = true;
  int color = 0;
  for (const BudgetPart& part : budget_parts()) {
    const std::optional<int64_t>& limit = project.budget.*part.limit;
    if (!limit || *limit == 0) continue;
    report::Curve curve;
    curve.name = label_of(part);
    curve.color = color++ % report::kColors;
    for (int point = 0; point <= kPoints; ++point) {
      const int64_t at = first + (now_ms - first) * point / kPoints;
      curve.x.push_back(static_cast<double>(at - first) / 1000);
      const auto spent = static_cast<double>(spent_until(launches, part, at));
      curve.y.push_back(std::max(0.0, 1 - spent / static_cast<double>(*limit)));
    }
    chart.curves.push_back(std::move(curve));
  }
  return report::draw(chart);
}

std::string project_html(const Caller& caller, const Project& project, int index) {
  const Spend spent = spent_by_project(caller.database, project.name);
  std::string html;
  if (!project.budget.limited()) {
    html = fmt::format("<p class=\"note\">No limit. Spent: {}, {}, {:.4g} node-hours.</p>\n",
                       format_usd(spent.micro_usd), format_energy(spent.micro_kwh),
                       static_cast<double>(spent.node_microhours) / kMicro);
    return report::html_card(project.name, html);
  }
  const std::vector<Launch> launches = launches_in(caller.database, project.name, kMostLaunches);
  html = bars(project.budget, spent);
  const Rate rate = present_rate(launches);
  if (rate.nodes > 0) {
    const auto left = milliseconds_left(project.budget, spent, rate);
    html += fmt::format("<p class=\"note\">{}</p>\n",
                        left ? fmt::format("At the current rate it lasts for {}.",
                                           format_seconds(static_cast<double>(*left) / 1000))
                             : std::string("Running jobs do not use it."));
  }
  return report::html_card(project.name, html) +
         burn_down(project, launches, fmt::format("budget-{}", index), caller.now_ms);
}

}  // namespace

std::string budgets_html(const WebView& view) {
  const std::vector<std::string> names = projects_where(view.caller, Action::view_ledger);
  if (names.empty()) return "<p class=\"empty\">You have a role in no project.</p>\n";
  const auto count = static_cast<int64_t>(names.size());
  const int64_t first = std::min(view.pages.budgets, count);
  std::string out;
  for (int64_t i = first; i < std::min(first + kProjects, count); ++i) {
    const auto project = find_project(view.caller.database, names[static_cast<size_t>(i)]);
    if (!project) continue;
    out += "<div class=\"grid2 budget\">" +
           project_html(view.caller, *project, static_cast<int>(i)) + "</div>\n";
  }
  return out + pages_html(view.pages, &WebPages::budgets, kProjects, count, "budgets");
}

}  // namespace tutti::control
