// Spending of projects in a month, job by job: as a table for spreadsheets and as a page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"

namespace tutti::control {

struct StatementLine {
  std::string project;
  int64_t job = 0;
  std::string user;
  std::string energy;  // energy_label
  Spend spend;
};

struct Statement {
  std::string month;  // "2026-01"; empty: all
  std::vector<StatementLine> jobs;
  std::vector<std::pair<std::string, Spend>> projects;  // sums of their jobs
};

Statement make_statement(Database& database, const std::vector<std::string>& projects,
                         const std::string& month);

// "measured", "estimated", or "partly measured" where launches differ.
std::string energy_label(const std::vector<LedgerEntry>& entries);

// One row per job, with six exact decimal places: project, month, job, user, node_hours,
// core_hours, gpu_hours, usd, kwh, energy, co2e_kg, water_liters.
std::string statement_csv(const Statement& statement);
// `made_wall_seconds` is the time shown as that of the page.
std::string statement_html(const Statement& statement, const Site& site, double made_wall_seconds);
Json to_json(const Statement& statement);

}  // namespace tutti::control
