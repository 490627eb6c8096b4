#include "tutti/control/schedule/limits.h"

#include <algorithm>
#include <optional>

#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/schedule/policy.h"

namespace tutti::control {
namespace {

// What a job and its project may spend, and what they have.
struct Account {
  Spend job;
  Budget project_budget;
  Spend project;
};

Account account_of(Database& database, const Job& job) {
  const auto project = find_project(database, job.request.project);
  return {spent_by_job(database, job.id), project ? project->budget : Budget{},
          spent_by_project(database, job.request.project)};
}

}  // namespace

bool is_past_deadline(const Job& job, int64_t now_ms) {
  return job.request.deadline_ms > 0 && job.request.deadline_ms <= now_ms;
}

Stop stop_due(Database& database, const Job& job, int64_t now_ms) {
  const Account account = account_of(database, job);
  return stop_due(job, account.job, account.project_budget, account.project, now_ms);
}

int64_t grace_ms(Database& database, const Job& job) {
  const Account account = account_of(database, job);
  return grace_ms(job, account.job, account.project_budget, account.project);
}

int64_t stop_after_ms(Database& database, const Job& job, const Rate& rate, int64_t now_ms) {
  int64_t allowed = job.request.time_limit_ms;
  const auto shorten = [&](std::optional<int64_t> left) {
    if (!left) return;
    const int64_t at_least = std::max<int64_t>(1, *left);
    allowed = allowed == 0 ? at_least : std::min(allowed, at_least);
  };
  if (job.request.deadline_ms > 0) shorten(job.request.deadline_ms - now_ms);
  const Account account = account_of(database, job);
  shorten(milliseconds_left(job.request.budget, account.job, rate));
  shorten(milliseconds_left(account.project_budget, account.project, rate));
  return allowed;
}

}  // namespace tutti::control
