#include "tutti/control/web/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/node_report.h"
#include "tutti/control/jobs/amounts.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/people/visible.h"
#include "tutti/report/html.h"
#include "tutti/report/line_chart.h"
#include "tutti/report/run_summary.h"

namespace tutti::control {
namespace {

constexpr size_t kRuns = 4;             // curves
constexpr int64_t kRunCandidates = 50;  // jobs whose run may have one
constexpr int64_t kIncidents = 50;
constexpr int64_t kAuditLines = 40;
constexpr int64_t kMostRunBytes = int64_t{64} << 20;  // of a record that is drawn live
constexpr double kStaleSeconds = 86400;               // of a node's report

std::string empty_note(const char* text) {
  return fmt::format("<p class=\"empty\">{}</p>\n", report::escape_html(text));
}

std::string runs_html(const WebView& view) {
  // Those that run, then the newest that did.
  JobFilter filter;
  filter.most = kRunCandidates;
  filter.which = JobFilter::Which::active;
  std::vector<Job> jobs = visible_jobs(view.caller, filter);
  filter.which = JobFilter::Which::ended;
  for (Job& job : visible_jobs(view.caller, filter)) jobs.push_back(std::move(job));
  std::string out;
  std::set<std::string> shown;
  for (const Job& job : jobs) {
    if (shown.size() >= kRuns) break;
    const std::string& folder = job.request.run_folder;
    if (folder.empty() || job.started_ms == 0 || shown.count(folder) != 0) continue;
    // A run folder may be named by anybody: it is shown to those who may see the first job that had
    // it.
    const auto project = project_of_run(view.caller.database, folder);
    if (!project || !may(view.caller, Action::view, *project)) continue;
    const std::string drawing =
        view.drawings.draw(view.files, folder, fmt::format("run-{}", job.id));
    if (drawing.empty()) continue;
    shown.insert(folder);
    out += fmt::format(
        "<div class=\"run\"><h3>Job {}: {} <span class=\"sub\">{}</span></h3>\n{}</div>\n", job.id,
        report::escape_html(job.request.name), state_html(job.state), drawing);
  }
  return out.empty() ? empty_note("No run has a curve yet.")
                     : "<div class=\"grid2\">" + out + "</div>\n";
}

std::string nodes_html(const WebView& view) {
  const std::vector<NodeReport> reports = read_node_reports(view.files, view.folder.health());
  const std::vector<Claim> claims = all_claims(view.caller.database);
  report::Table table;
  table.caption = "Nodes and their last check";
  table.columns = {{"Node"},
                   {"State", false, true},
                   {"Cores in use", true},
                   {"GPUs in use", true},
                   {"Health", false, true},
                   {"Checked (UTC)", false, true},
                   {"Problem"}};
  std::set<std::string> known;
  const auto health_of = [&](const std::string& name, std::vector<std::string> row) {
    known.insert(name);
    const auto report = std::find_if(reports.begin(), reports.end(),
                                     [&](const NodeReport& r) { return r.node == name; });
    if (report == reports.end()) {
      row.insert(row.end(), {"not checked", "–", ""});
    } else if (!report->problem.empty()) {
      row.insert(row.end(), {"unknown", "–", report->problem});
    } else {
      std::vector<std::string> wrong;
      for (const NodeReport::Failure& failure : report->failures) {
        wrong.push_back(failure.check + ": " + failure.detail);
      }
      const double age = static_cast<double>(view.caller.now_ms) / 1000 - report->wall_seconds;
      std::string state = !report->healthy ? "unhealthy" : report->busy ? "busy" : "healthy";
      if (age > kStaleSeconds) state += " (old)";
      row.insert(row.end(), {state, format_day_time(std::llround(1000 * report->wall_seconds)),
                             join(wrong, "; ")});
    }
    table.rows.push_back(std::move(row));
  };
  for (const Node& node : all_nodes(view.caller.database)) {
    int64_t cores = 0;
    int64_t gpus = 0;
    for (const Claim& claim : claims) {
      if (claim.node != node.name) continue;
      cores += claim.cores;
      gpus += claim.gpus;
    }
    std::string state = !node.up ? "down" : node.drained ? "drained" : "up";
    if (!node.reason.empty()) state += ": " + node.reason;
    health_of(node.name, {node.name, state, fmt::format("{} of {}", cores, node.cores),
                          fmt::format("{} of {}", gpus, node.gpus)});
  }
  for (const NodeReport& report : reports) {
    if (known.count(report.node) == 0) {
      health_of(report.node, {report.node, "not of this site", "", ""});
    }
  }
  return "<div class=\"card\">" + report::html_table(table) + "</div>\n";
}

std::string incidents_html(const WebView& view) {
  const std::vector<VisibleIncident> incidents = visible_incidents(view.caller, kIncidents);
  if (incidents.empty()) return empty_note("No incidents.");
  report::Table table;
  table.caption = "Incidents, newest first";
  table.columns = {
      {"Time (UTC)", false, true}, {"Job", true}, {"Name"},   {"Node"},
      {"Cause", false, true},      {"Fault"},     {"Action"}, {"Work lost (at most)", true}};
  table.rows.reserve(incidents.size());
  for (const auto& [incident, name] : incidents) {
    table.rows.push_back({format_day_time(incident.time_ms), std::to_string(incident.job), name,
                          incident.node, incident.cause, incident.detail, incident.action,
                          took(incident.lost_ms)});
  }
  return "<div class=\"card\">" + report::html_table(table) + "</div>\n";
}

std::string audit_html(const WebView& view) {
  report::Table table;
  table.caption = "Audit log, newest first";
  table.columns = {{"Line", true}, {"Time", false, true}, {"Who"},
                   {"What"},       {"On what"},           {"Allowed", false, true}};
  std::vector<Json> lines = audit_lines(view.caller.database, kAuditLines, "");
  std::reverse(lines.begin(), lines.end());
  for (const Json& line : lines) {
    const char* origin = "the audit log";
    table.rows.push_back(
        {std::to_string(json_get<int64_t>(line, "seq", origin)),
         json_get<std::string>(line, "time", origin), json_get<std::string>(line, "who", origin),
         json_get<std::string>(line, "what", origin), json_get<std::string>(line, "on", origin),
         json_get<bool>(line, "allowed", origin) ? "yes" : "denied"});
  }
  return "<div class=\"card\">" + report::html_table(table) + "</div>\n";
}

}  // namespace

std::string RunDrawings::draw(FileSystem& files, const std::string& run_folder,
                              const std::string& id) {
  const std::string record = join_path(run_folder, "events.jsonl");
  if (!files.exists(record)) return {};
  const int64_t bytes = files.size_bytes(record);
  const std::scoped_lock lock(mutex_);
  Kept& kept = kept_[id + run_folder];
  const double begin = monotonic_seconds();
  // A long record is drawn less often: a twentieth of the time at most goes into it.
  if (kept.bytes == bytes || begin < kept.not_before) return kept.html;
  kept.bytes = bytes;
  if (bytes > kMostRunBytes) {
    return kept.html = empty_note("Its record is too long to plot here; use tutti report.");
  }
  try {
    const report::RunData run = report::read_run(files, run_folder);
    const report::RunSummary summary = report::summarize(run, wall_seconds());
    report::LineChart chart;
    chart.id = id;
    chart.title = "Loss";
    chart.subtitle = fmt::format(
        "Nats per token. Step {}{}, {}.", summary.steps,
        summary.planned_steps > 0 ? fmt::format(" of {}", summary.planned_steps) : std::string(),
        format_rate(summary.tokens_per_second, "tokens"));
    chart.y_quantity = report::Quantity::loss;
    report::Curve training{
        "training", run.steps.step, run.steps.loss, 0, report::Curve::Style::line, true};
    chart.curves.push_back(std::move(training));
    report::Curve validation;
    validation.name = "validation";
    validation.color = 1;
    validation.style = report::Curve::Style::dots;
    for (const auto& evaluation : run.evaluations) {
      validation.x.push_back(static_cast<double>(evaluation.body.step));
      validation.y.push_back(evaluation.body.loss);
    }
    chart.curves.push_back(std::move(validation));
    if (summary.target_loss) {
      chart.horizontal.push_back(
          {*summary.target_loss,
           "target " + report::format_value(report::Quantity::loss, *summary.target_loss)});
    }
    kept.html = report::draw(chart);
  } catch (const Error&) {
    kept.html.clear();  // it has not recorded anything yet
  }
  kept.not_before = begin + 20 * (monotonic_seconds() - begin);
  return kept.html;
}

std::vector<report::Section> live_sections(const WebView& view) {
  std::vector<report::Section> out = {{"queue", "Queue", queue_html(view)},
                                      {"runs", "Runs", runs_html(view)}};
  if (may(view.caller, Action::run_controller, kAllProjects)) {
    out.push_back({"nodes", "Nodes", nodes_html(view)});
  }
  out.push_back({"budgets", "Budgets", budgets_html(view)});
  out.push_back({"incidents", "Incidents", incidents_html(view)});
  if (may(view.caller, Action::view_audit, kAllProjects)) {
    out.push_back({"audit", "Audit log", audit_html(view)});
  }
  return out;
}

std::vector<report::Tile> live_tiles(const WebView& view) {
  const JobTally tally = tally_visible(view.caller);
  const Spend spent = visible_spend(view.caller);
  return {
      {"Running", std::to_string(tally.active),
       fmt::format("on {} node{}", tally.nodes, tally.nodes == 1 ? "" : "s")},
      {"Waiting", std::to_string(tally.waiting), view.controller_runs ? "" : "no controller runs"},
      {"Spent", format_usd(spent.micro_usd), "all your projects"},
      {"Energy", format_energy(spent.micro_kwh), format_mass(spent.micro_kg) + " CO₂e"}};
}

}  // namespace tutti::control
