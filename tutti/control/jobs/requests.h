// Requests of users. Each function is one transaction: it checks the role, decides, writes, and
// leaves one line in the audit log, also where it refuses. Refusals throw permission (no role for
// it) or usage (a quota, budget or rule, with its text). Jobs of projects in which the caller may
// see nothing do not exist for them: not_found, as for a job that never existed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/jobs/job.h"
#include "tutti/control/people/permission.h"

namespace tutti::control {

struct Submission {
  Job job;
  bool duplicate = false;             // the same request came before, under the same key
  std::vector<std::string> warnings;  // such as a deadline that the forecast misses
};
// `dry_run`: everything is checked, nothing is written but the line of a refusal.
Submission submit(const Caller& caller, const JobRequest& request, bool dry_run);

// A pending job ends at once; a running one is asked to save and stop.
Job cancel(const Caller& caller, int64_t id);
// A failed job becomes pending again; a running one is asked to save, stop and become pending.
Job requeue(const Caller& caller, int64_t id);
Job set_held(const Caller& caller, int64_t id, bool held);

Job visible_job(const Caller& caller, int64_t id);
// Newest first; `live_only`: those that wait or run, in the order of submission.
std::vector<Job> visible_jobs(const Caller& caller, bool live_only, int64_t most);
std::vector<std::string> visible_projects(const Caller& caller);
// The caller, and who has a role or jobs in a project that the caller may see; all of them for whom
// `admin list` shows them.
std::vector<std::string> visible_users(const Caller& caller);

}  // namespace tutti::control
