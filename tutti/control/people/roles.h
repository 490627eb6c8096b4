// Permissions: a role in a project, a table of roles and actions, and nothing else.
//
// A user has at most one role in a project, and at most one in all of them (project "*"); the
// higher counts. Without a role nothing is allowed, not even to see that a job exists.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::control {

// NOLINTNEXTLINE(readability-identifier-naming): `operator` is a keyword
enum class Role { viewer, submitter, deployer, operator_, admin };
inline constexpr int kRoles = 5;

// Where an action concerns a job, `own` means a job of the user's own.
enum class Action {
  view,             // jobs of a project: queue, show, logs, why, cost
  submit,           // a job into a project
  steer_own,        // cancel, requeue, hold, release one's own job
  steer_any,        // the same with others' jobs of the project; approve its checkpoints
  deploy,           // models of a project; stop and restart its deployments
  raise_priority,   // above 0
  view_ledger,      // of a project: budgets, spend, reports
  view_audit,       // the audit log
  run_controller,   // start and stop it, drain nodes, back up and restore
  manage_projects,  // quotas, budgets, members of a project
  manage_users,     // users, tokens of others, projects, the site
};
inline constexpr int kActions = 11;

const char* role_name(Role role);          // "operator"
const char* action_name(Action action);    // "view_audit": in the audit log
const char* action_phrase(Action action);  // "view the audit log": after "may not" in messages
Role parse_role(std::string_view name);    // throws usage listing the roles

// The table; no role, no permission. view_audit, run_controller and manage_users are about the
// whole site: only a role in all projects ("*") counts for them.
bool allows(std::optional<Role> role, Action action);
bool is_about_everything(Action action);

}  // namespace tutti::control
