#include "tutti/control/ledger/statement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tutti/base/clock.h"
#include "tutti/control/ledger/spend.h"
#include "tutti/report/html.h"
#include "tutti/report/page.h"

namespace tutti::control {
namespace {

std::string month_text(const Statement& statement) {
  return statement.month.empty() ? "all months" : statement.month;
}

std::vector<std::string> amounts(const Spend& spend) {
  std::vector<std::string> cells;
  for (const SpendPart& part : spend_parts()) cells.push_back(format_micro(spend.*part.value));
  return cells;
}

}  // namespace

std::string energy_label(const std::vector<LedgerEntry>& entries) {
  const auto is_measured = [](const LedgerEntry& entry) { return entry.energy == "measured"; };
  const auto measured = std::count_if(entries.begin(), entries.end(), is_measured);
  if (measured == 0) return "estimated";
  return measured == static_cast<std::ptrdiff_t>(entries.size()) ? "measured" : "partly measured";
}

Statement make_statement(Database& database, const std::vector<std::string>& projects,
                         const std::string& month) {
  Statement statement;
  statement.month = month;
  for (const std::string& project : projects) {
    std::map<int64_t, std::vector<LedgerEntry>> jobs;
    for (LedgerEntry& entry : ledger_entries(database, project, month)) {
      jobs[entry.job].push_back(std::move(entry));
    }
    if (jobs.empty()) continue;
    Spend sum;
    for (const auto& [job, entries] : jobs) {
      StatementLine line{project, job, entries.front().user, energy_label(entries), {}};
      for (const LedgerEntry& entry : entries) line.spend += entry.spend;
      sum += line.spend;
      statement.jobs.push_back(std::move(line));
    }
    statement.projects.emplace_back(project, sum);
  }
  return statement;
}

std::string statement_csv(const Statement& statement) {
  std::string text =
      "project,month,job,user,node_hours,core_hours,gpu_hours,usd,kwh,energy,co2e_kg,"
      "water_liters\r\n";
  for (const StatementLine& line : statement.jobs) {
    const auto cells = amounts(line.spend);
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\r\n", line.project,
                        statement.month.empty() ? "all" : statement.month, line.job, line.user,
                        cells[0], cells[1], cells[2], cells[3], cells[4], line.energy, cells[5],
                        cells[6]);
  }
  return text;
}

std::string statement_html(const Statement& statement, const Site& site, double made_wall_seconds) {
  Spend all;
  for (const auto& [project, spend] : statement.projects) all += spend;
  report::Page page;
  page.kind = "Ledger";
  page.title = "Spend, " + month_text(statement);
  page.lead = fmt::format("{} jobs of {} projects at {}.", statement.jobs.size(),
                          statement.projects.size(), site.policy.name);
  page.status = "exact sums";
  page.tiles = {{"Price", fmt::format("{:.2f}", from_micro(all.micro_usd)), "USD"},
                {"Node-hours", fmt::format("{:.3f}", from_micro(all.node_microhours)), ""},
                {"Energy", fmt::format("{:.4g}", from_micro(all.micro_kwh)), "kWh at the machines"},
                {"CO2e", fmt::format("{:.4g}", from_micro(all.micro_kg)), "kg"}};
  const std::vector<report::Column> figures = {
      {"Node-hours", true}, {"Core-hours", true}, {"GPU-hours", true}, {"USD", true},
      {"kWh", true},        {"kg CO2e", true},    {"Litres", true}};
  report::Table projects;
  projects.caption = "Projects";
  projects.columns = {{"Project"}};
  projects.columns.insert(projects.columns.end(), figures.begin(), figures.end());
  for (const auto& [project, spend] : statement.projects) {
    std::vector<std::string> row = {project};
    for (std::string& cell : amounts(spend)) row.push_back(std::move(cell));
    projects.rows.push_back(std::move(row));
  }
  report::Table jobs;
  jobs.caption = "Jobs";
  jobs.columns = {{"Project"}, {"Job", true}, {"User"}, {"Energy"}};
  jobs.columns.insert(jobs.columns.end(), figures.begin(), figures.end());
  for (const StatementLine& line : statement.jobs) {
    std::vector<std::string> row = {line.project, std::to_string(line.job), line.user, line.energy};
    for (std::string& cell : amounts(line.spend)) row.push_back(std::move(cell));
    jobs.rows.push_back(std::move(row));
  }
  page.sections = {
      {"projects", "Projects", report::html_table(projects)},
      {"jobs", "Jobs", report::html_table(jobs)},
      {"rates", "Rates",
       report::html_facts(
           {{"node-hour", format_micro(site.micro_usd_per_node_hour) + " USD"},
            {"node under load, estimated",
             fmt::format("{} W", static_cast<double>(site.milliwatts_per_node) / 1000)},
            {"facility over machine (PUE)", fmt::format("{}", site.pue)},
            {"grid", format_micro(site.micro_kg_per_kwh) + " kg CO2e per kWh"},
            {"water", format_micro(site.micro_liters_per_kwh) + " litres per kWh"}})}};
  page.footer = "Made " + format_utc(made_wall_seconds) +
                ". Rates are those of today; what was booked is not changed by them. Energy is "
                "measured by the processors' counters where a job had the whole machine, else "
                "estimated from the node's power.";
  return report::render(page);
}

Json to_json(const Statement& statement) {
  Json json = {
      {"month", month_text(statement)}, {"projects", Json::array()}, {"jobs", Json::array()}};
  for (const auto& [project, spend] : statement.projects) {
    Json line = {{"project", project}};
    line.update(to_json(spend));
    json["projects"].push_back(std::move(line));
  }
  for (const StatementLine& each : statement.jobs) {
    Json line = {
        {"project", each.project}, {"job", each.job}, {"user", each.user}, {"energy", each.energy}};
    line.update(to_json(each.spend));
    json["jobs"].push_back(std::move(line));
  }
  return json;
}

}  // namespace tutti::control
