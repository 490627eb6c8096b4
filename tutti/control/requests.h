// What people may ask for. Each function is one transaction: it checks the role, decides, writes,
// and leaves one line in the trail, also where it refuses. Refusals throw permission (no role for
// it) or usage (a quota, budget or rule, with its text). Jobs of projects in which the caller may
// see nothing do not exist for them: not_found, as for a job that never was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/account_table.h"
#include "tutti/control/audit.h"
#include "tutti/control/database.h"
#include "tutti/control/job.h"

namespace tutti::control {

struct Caller {
  Database& database;
  std::string user;
  int64_t now_ms = 0;
};

inline constexpr const char* kDefaultProject = "default";

// The first use of a new database: `user` becomes admin of everything and gets the project
// "default"; `node` is the machine. Does nothing in a database that has users.
void found_place(const Caller& caller, const Node& node, const Site& site);

// Throws permission, with a line in the trail, unless the caller's role in `project` allows it.
void authorize(const Caller& caller, Action action, const std::string& project,
               const std::string& on);

struct Submission {
  Job job;
  bool duplicate = false;             // the same request came before, under the same key
  std::vector<std::string> warnings;  // such as a deadline that the forecast misses
};
// `dry_run`: everything is checked, nothing is written but the line of a refusal.
Submission submit(const Caller& caller, const JobRequest& request, bool dry_run);

// A job that waits ends at once; one that runs is told to save and stop.
Job cancel(const Caller& caller, int64_t id);
// A job that ended badly waits again; one that runs is told to save, stop and wait again.
Job requeue(const Caller& caller, int64_t id);
Job set_held(const Caller& caller, int64_t id, bool held);

Job visible_job(const Caller& caller, int64_t id);
// Newest first; `live_only`: those that wait or run, in the order of submission.
std::vector<Job> visible_jobs(const Caller& caller, bool live_only, int64_t most);
std::vector<std::string> visible_projects(const Caller& caller);

// Who and what there is. Needs manage_users, or manage_projects in the project concerned.
void create_user(const Caller& caller, const std::string& user);
void grant(const Caller& caller, const Member& member);
void revoke(const Caller& caller, const std::string& user, const std::string& project);
void define_project(const Caller& caller, const Project& project);  // creates or replaces
void define_site(const Caller& caller, const Site& site);
void define_node(const Caller& caller, const Node& node);
// One's own, or with manage_users another's. Returns the secret, which is kept nowhere.
std::string issue_token(const Caller& caller, const std::string& user, int64_t expires_ms);
void withdraw_token(const Caller& caller, const std::string& id);

}  // namespace tutti::control
