// `tutti why`, `cost`, `ledger`: why a job waits, what jobs cost.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/run_end.h"
#include "tutti/cli/control/served.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/controller/controller.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/ledger/statement.h"
#include "tutti/control/people/visible.h"
#include "tutti/control/schedule/schedule.h"

namespace tutti::cli {
namespace {

using control::Job;
using control::Reason;

struct JobArguments {
  ControlOptions control;
  int64_t job = 0;
  int64_t most = 50;  // of the jobs ahead that are named
};

std::string explain(Reason reason, const std::string& detail) {
  const std::string more = detail.empty() ? "" : ": " + detail;
  switch (reason) {
    case Reason::priority: return "other jobs come first";
    case Reason::resources: return "it is first in line and waits for nodes or cores";
    case Reason::begin_time: return "it pauses after a failure" + more;
    case Reason::held: return "it is held; `tutti release` lets it start";
    case Reason::quota_nodes: return "its project has as many nodes as it may" + more;
    case Reason::quota_cores: return "its project has as many cores as it may" + more;
    case Reason::quota_jobs: return "its project runs as many jobs as it may" + more;
    case Reason::budget: return "the budget of its project is used up" + more;
    case Reason::never_fits: return "no nodes here are large enough";
    case Reason::site_rule: return "its data may not be here; " + detail;
    default: return "it may start now";
  }
}

struct Ahead {
  std::vector<std::string> seen;
  size_t hidden = 0;  // of others' jobs only how many there are
};

Ahead ahead_of(const control::Caller& caller, const control::Schedule& plan,
               const control::Wait& wait) {
  std::vector<int64_t> ids(plan.line.begin(),
                           plan.line.begin() + static_cast<std::ptrdiff_t>(wait.ahead));
  // Those that may start now come before it, too.
  for (const control::Start& each : plan.starts) {
    if (each.job != wait.job) ids.push_back(each.job);
  }
  Ahead ahead;
  const std::vector<int64_t> visible = control::visible_ids(caller, ids);
  ahead.hidden = ids.size() - visible.size();
  ahead.seen.reserve(visible.size());
  for (const int64_t id : visible) ahead.seen.push_back(std::to_string(id));
  return ahead;
}

// Nodes that take no jobs now, and why.
std::vector<std::string> unused_nodes(const std::vector<control::Node>& nodes) {
  std::vector<std::string> out;
  for (const control::Node& node : nodes) {
    if (node.up && !node.drained) continue;
    out.push_back(fmt::format("{} ({}{}{})", node.name, node.up ? "drained" : "down",
                              node.reason.empty() ? "" : ": ", node.reason));
  }
  return out;
}

// Of the jobs that run, as `show` says it of each. What their runs record is better than a forecast
// of before they began.
std::map<int64_t, int64_t> ends_of_runs(control::Database& database,
                                        const control::Snapshot& snapshot) {
  constexpr size_t kMostRuns = 100;  // that are read
  std::map<int64_t, int64_t> ends;
  const double now = static_cast<double>(snapshot.now_ms) / 1000;
  size_t read = 0;
  for (const Job& job : snapshot.jobs) {
    if (!control::owns_nodes(job.state)) continue;
    if (read++ == kMostRuns) break;
    const std::string folder = control::run_folder_of(database, job.id);  // not in a snapshot
    if (folder.empty()) continue;
    const auto end = run_end_seconds(posix_file_system(), folder, now);
    if (end) ends[job.id] = static_cast<int64_t>(*end * 1000);
  }
  return ends;
}

int run_why(const JobArguments& arguments) {
  ControlSession session(arguments.control);
  const control::Caller caller = session.caller();
  const Job job = control::visible_job(caller, arguments.job);
  if (job.state != control::JobState::pending) {
    const std::string text = fmt::format(
        "job {} does not wait: it is {} ({}{}{})", job.id, control::state_name(job.state),
        control::reason_name(job.reason), job.detail.empty() ? "" : ": ", job.detail);
    if (arguments.control.json) {
      Json json = job_json(job);
      json["text"] = text;
      print_json(json);
    } else {
      print_text(text + "\n");
    }
    return exit_ok;
  }
  control::Snapshot snapshot = control::read_snapshot(session.database(), caller.now_ms);
  const control::Schedule plan = control::schedule(snapshot);
  const auto waiting = std::find_if(plan.waits.begin(), plan.waits.end(),
                                    [&](const control::Wait& each) { return each.job == job.id; });
  control::Wait wait{job.id, Reason::none, "", 0};
  if (waiting != plan.waits.end()) wait = *waiting;
  const Ahead ahead = ahead_of(caller, plan, wait);
  const std::vector<std::string> unused = unused_nodes(snapshot.nodes);
  snapshot.ends_ms = ends_of_runs(session.database(), snapshot);
  const auto start = control::expected_start_ms(std::move(snapshot), plan, job.id);
  const bool runs = controller_runs(session.folder());
  const auto shown =
      static_cast<std::ptrdiff_t>(std::min(ahead.seen.size(), static_cast<size_t>(arguments.most)));
  const std::vector<std::string> named(ahead.seen.begin(), ahead.seen.begin() + shown);
  if (arguments.control.json) {
    print_json({{"job", job.id},
                {"state", control::state_name(job.state)},
                {"reason", control::reason_name(wait.reason)},
                {"text", explain(wait.reason, wait.detail)},
                {"ahead", named},
                {"ahead_count", ahead.seen.size()},
                {"ahead_of_others", ahead.hidden},
                {"unused_nodes", unused},
                {"expected_start", start ? Json(time_text(*start)) : Json()},
                {"controller_runs", runs}});
    return exit_ok;
  }
  std::string before = named.empty() ? "" : "job " + join(named, ", ");
  if (const size_t more = ahead.seen.size() - named.size(); more > 0) {
    before += fmt::format(" and {} more", more);
  }
  if (ahead.hidden > 0) {
    before += fmt::format("{}{} of other projects", before.empty() ? "" : " and ", ahead.hidden);
  }
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"job", fmt::format("{} {}", job.id, job.request.name)},
      {"waits because", explain(wait.reason, wait.detail)},
      {"ahead of it", before.empty() ? "none" : before},
      {"should start", !runs   ? "when a controller runs: tutti controller run"
                       : start ? time_text(*start) + ", if all goes as expected"
                               : "not before that changes"}};
  if (!unused.empty()) pairs.emplace_back("not in use", join(unused, ", "));
  print_text(format_pairs(pairs));
  return exit_ok;
}

std::vector<std::pair<std::string, std::string>> spend_pairs(const control::Spend& spend) {
  const auto whole = [](int64_t micro) { return static_cast<double>(micro) / 1e6; };
  return {{"node-hours", control::format_micro(spend.node_microhours)},
          {"core-hours", control::format_micro(spend.core_microhours)},
          {"GPU-hours", control::format_micro(spend.gpu_microhours)},
          {"price", control::format_micro(spend.micro_usd) + " USD"},
          {"energy", control::format_micro(spend.micro_kwh) + " kWh"},
          {"CO2e", fmt::format("{:.4g} kg", whole(spend.micro_kg))},
          {"water", fmt::format("{:.4g} l", whole(spend.micro_liters))}};
}

int run_cost(const JobArguments& arguments) {
  ControlSession session(arguments.control);
  const Job job = control::visible_job(session.caller(), arguments.job);
  const auto entries = control::ledger_entries_of(session.database(), job.id);
  const control::Spend spent = control::spent_by_job(session.database(), job.id);
  const std::string energy = control::energy_label(entries);
  const control::Forecast& forecast = job.request.forecast;
  if (arguments.control.json) {
    Json json = {{"job", job.id},
                 {"spent", control::to_json(spent)},
                 {"energy", energy},
                 {"budget", control::to_json(job.request.budget)},
                 {"forecast", forecast_json(forecast)}};
    json["entries"] = Json::array();
    for (const control::LedgerEntry& entry : entries) {
      Json line = control::to_json(entry.spend);
      line["generation"] = entry.generation;
      line["month"] = entry.month;
      line["energy"] = entry.energy;
      json["entries"].push_back(line);
    }
    print_json(json);
    return exit_ok;
  }
  auto pairs = spend_pairs(spent);
  pairs[4].second += " (" + energy + ")";
  pairs.emplace_back("forecast",
                     fmt::format("{}, {}, {}", duration_text(forecast.milliseconds),
                                 money_text(forecast.micro_usd), energy_text(forecast.micro_kwh)));
  print_text(format_pairs(pairs));
  return exit_ok;
}

struct LedgerArguments {
  ControlOptions control;
  std::string project;
  std::string month;
  std::string csv;
  std::string served_csv;
  std::string html;
};

// "2026-01", "all", or "" for this month.
void check_month(const std::string& text) {
  const auto digits = [&](size_t at, size_t count) {
    return std::all_of(text.begin() + at, text.begin() + at + count,
                       [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  const bool is_date = text.size() == 7 && text[4] == '-' && digits(0, 4) && digits(5, 2) &&
                       text.substr(5) >= "01" && text.substr(5) <= "12";
  if (!text.empty() && text != "all" && !is_date) {
    fail(ErrorKind::usage, "--month: '{}' is not accepted; write 2026-01, or all", text);
  }
}

int run_ledger(const LedgerArguments& arguments) {
  check_month(arguments.month);
  ControlSession session(arguments.control);
  const control::Caller caller = session.caller();
  std::vector<std::string> projects = control::visible_projects(caller);
  if (!arguments.project.empty()) {
    control::authorize(caller, control::Action::view_ledger, arguments.project,
                       "project " + arguments.project);
    projects = {arguments.project};
  }
  const std::string month =
      arguments.month.empty() ? control::month_of(caller.now_ms) : arguments.month;
  const control::Statement statement =
      control::make_statement(session.database(), projects, month == "all" ? "" : month);
  FileSystem& files = posix_file_system();
  const Served served = read_served(files, session.folder(), projects, month == "all" ? "" : month);
  if (served.damaged_lines > 0) {
    print_message(fmt::format("warning: {} lines of what deployments served are damaged\n",
                              served.damaged_lines));
  }
  if (!arguments.served_csv.empty()) {
    write_file_atomic(files, arguments.served_csv, served_csv(served));
  }
  if (!arguments.csv.empty()) {
    write_file_atomic(files, arguments.csv, control::statement_csv(statement));
  }
  if (!arguments.html.empty()) {
    write_file_atomic(files, arguments.html,
                      control::statement_html(statement, session.site(), wall_seconds()));
  }
  if (arguments.control.json) {
    Json json = control::to_json(statement);
    json["served"] = to_json(served);
    print_json(json);
    return exit_ok;
  }
  std::vector<std::vector<std::string>> rows = {
      {"project", "job", "user", "node-hours", "USD", "kWh", "energy", "kg CO2e", "litres"}};
  const auto add = [&](const std::string& project, const std::string& job, const std::string& user,
                       const control::Spend& spend, const std::string& energy) {
    rows.push_back({project, job, user, control::format_micro(spend.node_microhours),
                    control::format_micro(spend.micro_usd), control::format_micro(spend.micro_kwh),
                    energy, control::format_micro(spend.micro_kg),
                    control::format_micro(spend.micro_liters)});
  };
  for (const control::StatementLine& line : statement.jobs) {
    add(line.project, std::to_string(line.job), line.user, line.spend, line.energy);
  }
  for (const auto& [project, spend] : statement.projects) add(project, "all", "", spend, "");
  print_text(rows.size() == 1 ? "nothing was spent\n" : format_table(rows));
  if (!served.lines.empty()) print_text("\n" + served_text(served));
  return exit_ok;
}

}  // namespace

void add_job_questions(CLI::App& app, Action& action) {
  const auto why = std::make_shared<JobArguments>();
  CLI::App* command = app.add_subcommand("why", "Explain why a job is pending, and when it starts");
  command->add_option("JOB", why->job, "Its number")->required();
  command->add_option("--most", why->most, "Most jobs ahead to list")
      ->check(at_least(0))
      ->capture_default_str();
  add_control_options(*command, why->control);
  command->footer("Example:\n  tutti why 7");
  command->callback([why, &action] { action = [why] { return run_why(*why); }; });

  const auto cost = std::make_shared<JobArguments>();
  command = app.add_subcommand("cost", "Cost of a job: hours, money, energy, carbon, water");
  command->add_option("JOB", cost->job, "Its number")->required();
  add_control_options(*command, cost->control);
  command->footer("Example:\n  tutti cost 7");
  command->callback([cost, &action] { action = [cost] { return run_cost(*cost); }; });

  const auto ledger = std::make_shared<LedgerArguments>();
  command = app.add_subcommand(
      "ledger", "Spending of projects in a month, job by job, and what deployments served");
  command->add_option("--project", ledger->project,
                      "Only this project; default all that you may see");
  command->add_option("--month", ledger->month, "YYYY-MM (UTC) or all; default this month");
  command->add_option("--csv", ledger->csv, "Write a CSV table")->type_name("FILE");
  command
      ->add_option("--served-csv", ledger->served_csv,
                   "Write a CSV table of the tokens that deployments served, by API key")
      ->type_name("FILE");
  command->add_option("--html", ledger->html, "Write an HTML page")->type_name("FILE");
  add_control_options(*command, ledger->control);
  command->footer("Example:\n  tutti ledger --month 2026-01 --csv january.csv --html january.html");
  command->callback([ledger, &action] { action = [ledger] { return run_ledger(*ledger); }; });
}

}  // namespace tutti::cli
