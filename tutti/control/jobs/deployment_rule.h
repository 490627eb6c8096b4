// What a deployment may be, and which there are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/jobs/approval.h"
#include "tutti/control/jobs/job.h"
#include "tutti/control/people/permission.h"

namespace tutti::control {

// Why `request`, which has a deployment, is refused for anybody: its name, a live deployment of
// that name in its project or with its port anywhere, or a project that demands approved
// checkpoints (Project::approved_only) and has not approved this one. Empty: it is not.
std::string deployment_objection(const Caller& caller, const JobRequest& request,
                                 const Project& project);

// Why a deployment that has ended cannot run again as it was. Empty: it can.
std::string requeue_objection(const Caller& caller, const JobRequest& request,
                              const Project& project);

// The part about the name: why it cannot be had. Empty: it can.
std::string taken_name(const Caller& caller, const JobRequest& request);

// Approvals of its checkpoint in its project: those that count there.
std::vector<Approval> approvals_in_project(const Caller& caller, const JobRequest& request);

// Those that the caller may see, in the order of submission; `project` empty: any; `all`: ended
// ones as well.
std::vector<Job> visible_deployments(const Caller& caller, const std::string& project, bool all);

// The live deployment of that name that the caller may see. Throws not_found, and usage where
// several projects have one and `project` is empty.
Job find_deployment(const Caller& caller, const std::string& project, const std::string& name);

// The newest deployment of that name, live or not. Throws as find_deployment.
Job find_newest_deployment(const Caller& caller, const std::string& project,
                           const std::string& name);

// Makes a change of the API keys of a deployment, which needs the role of a deployer; `change`
// returns what the audit log says of it beside `what`.
void change_keys(const Caller& caller, const Job& deployment, const char* what,
                 const std::function<Json()>& change);

// The lowest port from `first` on that no live deployment listens on.
int64_t unused_port(Database& database, int64_t first);

}  // namespace tutti::control
