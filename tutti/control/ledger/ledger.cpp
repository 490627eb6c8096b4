#include "tutti/control/ledger/ledger.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti::control {
namespace {

#define SPEND_COLUMNS \
  "node_microhours, core_microhours, gpu_microhours, micro_usd, micro_kwh, micro_kg, micro_liters"
#define SPEND_ADDED                                                                             \
  "node_microhours = node_microhours + excluded.node_microhours, core_microhours = "            \
  "core_microhours + excluded.core_microhours, gpu_microhours = gpu_microhours + "              \
  "excluded.gpu_microhours, micro_usd = micro_usd + excluded.micro_usd, micro_kwh = micro_kwh " \
  "+ excluded.micro_kwh, micro_kg = micro_kg + excluded.micro_kg, micro_liters = micro_liters " \
  "+ excluded.micro_liters"

Spend spend_from(const Query& row, int column) {
  Spend spend;
  for (const SpendPart& part : spend_parts()) spend.*part.value = row.integer(column++);
  return spend;
}

void add_to_total(Database& database, const char* scope, const std::string& name,
                  const Spend& spend) {
  database.run(
      "INSERT INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, name) DO "
      "UPDATE SET " SPEND_ADDED,
      scope, name, spend.node_microhours, spend.core_microhours, spend.gpu_microhours,
      spend.micro_usd, spend.micro_kwh, spend.micro_kg, spend.micro_liters);
}

Spend total(Database& database, const char* scope, const std::string& name) {
  Query query = database.query("SELECT " SPEND_COLUMNS " FROM totals WHERE scope = ? AND name = ?",
                               scope, name);
  return query.next() ? spend_from(query, 0) : Spend{};
}

std::vector<LedgerEntry> entries_from(Query query) {
  std::vector<LedgerEntry> entries;
  while (query.next()) {
    entries.push_back({query.integer(0), query.integer(1), query.text(2), query.text(3),
                       query.text(4), query.text(5), spend_from(query, 6)});
  }
  return entries;
}

int64_t end_of_month_ms(int64_t time_ms) {
  using namespace std::chrono;
  const sys_time<milliseconds> time{milliseconds(time_ms)};
  const year_month_day date{floor<days>(time)};
  const sys_days next{date.year() / date.month() / 1 + months(1)};
  return duration_cast<milliseconds>(next.time_since_epoch()).count();
}

void book(Database& database, const Job& job, const Launch& launch, const Spend& more,
          bool is_measured, int64_t time_ms) {
  database.run(
      "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT "
      "(job, generation, month) DO UPDATE SET energy = excluded.energy, " SPEND_ADDED,
      job.id, launch.generation, month_of(time_ms), job.request.project, job.user,
      is_measured ? "measured" : "estimated", more.node_microhours, more.core_microhours,
      more.gpu_microhours, more.micro_usd, more.micro_kwh, more.micro_kg, more.micro_liters);
  add_to_total(database, "job", std::to_string(job.id), more);
  add_to_total(database, "project", job.request.project, more);
  add_to_total(database, "user", job.user, more);
}

}  // namespace

std::string month_of(int64_t time_ms) {
  return format_utc(static_cast<double>(time_ms) / 1000).substr(0, 7);
}

void charge(Database& database, const Job& job, const Launch& launch, int64_t elapsed_ms,
            std::optional<int64_t> measured_micro_kwh, int64_t now_ms) {
  Spend booked;
  {
    Query query =
        database.query("SELECT " SPEND_COLUMNS " FROM ledger WHERE job = ? AND generation = ?",
                       job.id, launch.generation);
    while (query.next()) booked += spend_from(query, 0);
  }
  // Months that have ended since it began, as far as they are not booked yet.
  const int64_t began_ms = now_ms - elapsed_ms;
  for (int64_t end_ms = end_of_month_ms(began_ms); end_ms < now_ms;
       end_ms = end_of_month_ms(end_ms)) {
    const int64_t until_ms = end_ms - began_ms;
    std::optional<int64_t> measured;
    if (measured_micro_kwh) {
      const double part = static_cast<double>(until_ms) / static_cast<double>(elapsed_ms);
      measured = std::llround(part * static_cast<double>(*measured_micro_kwh));
    }
    const Spend more = spend_of(launch.rate, until_ms, measured) - booked;
    if (more.node_microhours <= 0) continue;
    book(database, job, launch, more, measured.has_value(), end_ms - 1);
    booked += more;
  }
  const Spend more = spend_of(launch.rate, elapsed_ms, measured_micro_kwh) - booked;
  if (more == Spend{} && !measured_micro_kwh) return;
  book(database, job, launch, more, measured_micro_kwh.has_value(), now_ms);
}

Spend spent_by_job(Database& database, int64_t job) {
  return total(database, "job", std::to_string(job));
}

Spend spent_by_project(Database& database, const std::string& project) {
  return total(database, "project", project);
}

std::map<std::string, Spend> spent_by_projects(Database& database) {
  std::map<std::string, Spend> all;
  Query query =
      database.query("SELECT name, " SPEND_COLUMNS " FROM totals WHERE scope = 'project'");
  while (query.next()) all.emplace(query.text(0), spend_from(query, 1));
  return all;
}

std::vector<LedgerEntry> ledger_entries(Database& database, const std::string& project,
                                        const std::string& month) {
  return entries_from(database.query(
      "SELECT job, generation, month, project, user, energy, " SPEND_COLUMNS
      " FROM ledger WHERE (?1 = '' OR project = ?1) AND (?2 = '' OR month = ?2) ORDER BY job, "
      "generation, month",
      project, month));
}

std::vector<LedgerEntry> ledger_entries_of(Database& database, int64_t job) {
  return entries_from(
      database.query("SELECT job, generation, month, project, user, energy, " SPEND_COLUMNS
                     " FROM ledger WHERE job = ? ORDER BY "
                     "generation, month",
                     job));
}

void verify_ledger(Database& database) {
  std::map<std::pair<std::string, std::string>, Spend> sums;
  for (const LedgerEntry& entry : ledger_entries(database, "", "")) {
    sums[{"job", std::to_string(entry.job)}] += entry.spend;
    sums[{"project", entry.project}] += entry.spend;
    sums[{"user", entry.user}] += entry.spend;
  }
  Query query = database.query("SELECT scope, name, " SPEND_COLUMNS " FROM totals");
  size_t totals = 0;
  while (query.next()) {
    ++totals;
    const auto found = sums.find({query.text(0), query.text(1)});
    const Spend sum = found == sums.end() ? Spend{} : found->second;
    if (spend_from(query, 2) != sum) {
      fail(ErrorKind::corrupt, "'{}': the total of {} {} is not the sum of its entries",
           database.path(), query.text(0), query.text(1));
    }
  }
  if (totals != sums.size()) {
    fail(ErrorKind::corrupt, "'{}': {} totals, and entries of {}", database.path(), totals,
         sums.size());
  }
}

}  // namespace tutti::control
