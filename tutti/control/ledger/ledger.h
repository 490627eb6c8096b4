// What every launch has cost, month by month (UTC). Per launch and month there is one entry, which
// grows while the launch runs and never changes afterwards; totals per job, project and user are
// stored as well and always equal the sums of the entries.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/control/jobs/job.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// Within a transaction: brings the entries of a launch to what `elapsed_ms` of it cost. Energy that
// was measured (micro-kWh of the whole launch) replaces the estimate. What ran before a month's end
// and is not booked yet goes to that month: the launch is taken to have run until `now_ms`.
void charge(Database& database, const Job& job, const Launch& launch, int64_t elapsed_ms,
            std::optional<int64_t> measured_micro_kwh, int64_t now_ms);

Spend spent_by_job(Database& database, int64_t job);
Spend spent_by_project(Database& database, const std::string& project);
std::map<std::string, Spend> spent_by_projects(Database& database);  // of those that spent at all

struct LedgerEntry {
  int64_t job = 0;
  int64_t generation = 0;
  std::string month;  // "2026-01"
  std::string project;
  std::string user;
  std::string energy;  // "measured" or "estimated"
  Spend spend;
};
// In order of job, generation and month; of one project and one month unless these are empty.
std::vector<LedgerEntry> ledger_entries(Database& database, const std::string& project,
                                        const std::string& month);
std::vector<LedgerEntry> ledger_entries_of(Database& database, int64_t job);

// Recomputes all sums of entries and throws corrupt naming the first total that differs.
void verify_ledger(Database& database);

std::string month_of(int64_t time_ms);

}  // namespace tutti::control
