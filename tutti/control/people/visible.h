// What a caller may see, found by the database: a view costs what it shows, not what there is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/jobs/job.h"
#include "tutti/control/people/permission.h"

namespace tutti::control {

// Projects in which the caller's role allows that, sorted. `action` is one of a project (roles.h).
std::vector<std::string> projects_where(const Caller& caller, Action action);

struct JobFilter {
  // live: those that wait or run, in the order of submission; the others newest first. active:
  // those that have nodes.
  enum class Which { live, active, ended, all } which = Which::all;
  std::string project;  // empty: any
  std::string user;     // empty: any
  int64_t skip = 0;     // the first so many are left out
  int64_t most = 0;     // at most so many
};
std::vector<Job> visible_jobs(const Caller& caller, const JobFilter& filter);
int64_t count_visible(const Caller& caller, const JobFilter& filter);  // whatever `skip` and `most`

// Those of `ids` that the caller may see, in that order; `ids` are jobs that there are.
std::vector<int64_t> visible_ids(const Caller& caller, const std::vector<int64_t>& ids);

struct JobTally {
  int64_t active = 0;   // own nodes
  int64_t waiting = 0;  // will continue by themselves, without nodes now
  int64_t nodes = 0;    // that the active ones have
};
JobTally tally_visible(const Caller& caller);

struct VisibleIncident {
  Incident incident;
  std::string job_name;
};
std::vector<VisibleIncident> visible_incidents(const Caller& caller, int64_t most);  // newest first

// The sum of what the projects have cost whose ledger the caller may see.
Spend visible_spend(const Caller& caller);

// The project of the first job that had this run folder; none: no job had it. A run folder may be
// named by anybody: it is that project's to show.
std::optional<std::string> project_of_run(Database& database, const std::string& run_folder);
// A job that has this run folder and has not ended.
std::optional<int64_t> live_job_of_run(Database& database, const std::string& run_folder);

// The newest job with this run folder that the caller may see.
std::optional<Job> visible_job_of_run(const Caller& caller, const std::string& run_folder);

}  // namespace tutti::control
