#include "tutti/control/jobs/deployment_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tutti/base/text.h"
#include "tutti/control/jobs/job_table.h"

namespace tutti::control {
namespace {

constexpr size_t kLongestDeploymentName = 64;  // bytes

// It is a folder, a word of a command and a model's name.
bool is_deployment_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestDeploymentName && name[0] != '-' &&
         name[0] != '.' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string::npos;
}

std::vector<int64_t> deployment_ids(Database& database, bool all) {
  std::vector<int64_t> ids;
  Query query = database.query(all ? "SELECT id FROM jobs WHERE json_extract(request, "
                                     "'$.deployment.name') IS NOT NULL ORDER BY id"
                                   : "SELECT id FROM jobs WHERE " JOB_IS_LIVE
                                     " AND json_extract(request, '$.deployment.name') IS NOT NULL "
                                     "ORDER BY id");
  while (query.next()) ids.push_back(query.integer(0));
  return ids;
}

}  // namespace

std::vector<Approval> approvals_in_project(const Caller& caller, const JobRequest& request) {
  std::vector<Approval> approvals = approvals_of(caller, request.deployment->manifest_sha256);
  std::erase_if(approvals, [&](const Approval& each) { return each.project != request.project; });
  return approvals;
}

std::string taken_name(const Caller& caller, const JobRequest& request) {
  const std::string& name = request.deployment->name;
  for (const int64_t id : deployment_ids(caller.database, false)) {
    const auto other = find_job(caller.database, id);
    if (other->request.project != request.project || other->request.deployment->name != name) {
      continue;
    }
    return fmt::format(
        "project '{}' has a deployment '{}', job {}; stop it first: tutti deployment stop {} "
        "--project {}",
        request.project, name, id, name, request.project);
  }
  return {};
}

namespace {

std::string taken_port(const Caller& caller, const JobRequest& request) {
  const int64_t port = request.deployment->port;
  for (const int64_t id : deployment_ids(caller.database, false)) {
    if (find_job(caller.database, id)->request.deployment->port != port) continue;
    return fmt::format(
        "port {} is that of another deployment, job {}, whether it runs just now or not; give "
        "another --port, or none and one is chosen",
        port, id);
  }
  return {};
}

std::string unapproved(const Caller& caller, const JobRequest& request, const Project& project) {
  if (!project.approved_only || !approvals_in_project(caller, request).empty()) return {};
  const std::string& checkpoint = request.deployment->checkpoint;
  return fmt::format(
      "project '{}' deploys approved checkpoints only, and '{}' is not approved there; an "
      "operator of the project can approve it: tutti checkpoint approve {} --project {}",
      project.name, checkpoint, checkpoint, project.name);
}

}  // namespace

std::string requeue_objection(const Caller& caller, const JobRequest& request,
                              const Project& project) {
  if (std::string text = taken_name(caller, request); !text.empty()) return text;
  if (std::string text = taken_port(caller, request); !text.empty()) return text;
  return unapproved(caller, request, project);
}

std::string deployment_objection(const Caller& caller, const JobRequest& request,
                                 const Project& project) {
  const Deployment& deployment = *request.deployment;
  if (!is_deployment_name(deployment.name)) {
    return fmt::format(
        "--name: '{}' is not a valid name of a deployment; write 1 to {} letters, digits, . _ -, "
        "of which . and - not first",
        printable(deployment.name.substr(0, 2 * kLongestDeploymentName)), kLongestDeploymentName);
  }
  if (std::string text = taken_name(caller, request); !text.empty()) {
    return text + ", or give another --name";
  }
  if (std::string text = taken_port(caller, request); !text.empty()) return text;
  return unapproved(caller, request, project);
}

std::vector<Job> visible_deployments(const Caller& caller, const std::string& project, bool all) {
  std::vector<Job> jobs;
  for (const int64_t id : deployment_ids(caller.database, all)) {
    auto job = find_job(caller.database, id);
    const bool is_wanted = project.empty() || job->request.project == project;
    if (!is_wanted || !may(caller, Action::view, job->request.project)) continue;
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

namespace {

Job only_one_named(std::vector<Job> jobs, const std::string& name) {
  std::erase_if(jobs, [&](const Job& job) { return job.request.deployment->name != name; });
  if (jobs.empty()) {
    fail(ErrorKind::not_found,
         "no deployment '{}' that you may see; tutti deployment list shows those that there are",
         printable(name));
  }
  std::set<std::string> projects;
  for (const Job& job : jobs) projects.insert(job.request.project);
  if (projects.size() > 1) {
    fail(ErrorKind::usage, "several projects have a deployment '{}': {}; give --project", name,
         join(std::vector<std::string>(projects.begin(), projects.end()), ", "));
  }
  return jobs.back();
}

}  // namespace

Job find_deployment(const Caller& caller, const std::string& project, const std::string& name) {
  return only_one_named(visible_deployments(caller, project, false), name);
}

Job find_newest_deployment(const Caller& caller, const std::string& project,
                           const std::string& name) {
  return only_one_named(visible_deployments(caller, project, true), name);
}

void change_keys(const Caller& caller, const Job& deployment, const char* what,
                 const std::function<Json()>& change) {
  Transaction transaction(caller.database);
  const std::string& project = deployment.request.project;
  const std::string on =
      fmt::format("deployment {}/{}", project, deployment.request.deployment->name);
  require(caller, transaction, Action::deploy, project, what, on);
  note(caller, what, on, true, change());
  transaction.commit();
}

int64_t unused_port(Database& database, int64_t first) {
  std::set<int64_t> used;
  for (const int64_t id : deployment_ids(database, false)) {
    used.insert(find_job(database, id)->request.deployment->port);
  }
  int64_t port = first;
  while (used.count(port) > 0) ++port;
  return port;
}

}  // namespace tutti::control
