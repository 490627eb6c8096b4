#include "tutti/control/jobs/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/jobs/deployment_rule.h"
#include "tutti/control/jobs/guarded_keys.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/people/visible.h"

namespace tutti::control {
namespace {

constexpr size_t kLongestName = 200;             // bytes
constexpr int64_t kHighestPriority = 1'000'000;  // hours of waiting are added to it

std::string name_of_job(int64_t id) { return fmt::format("job {}", id); }

// A job that the caller may see, for an action that steers it.
Job job_to_steer(const Caller& caller, Transaction& transaction, int64_t id, const char* what) {
  auto job = find_job(caller.database, id);
  const std::string on = name_of_job(id);
  if (!job || !may(caller, Action::view, job->request.project)) {
    refuse(caller, transaction, ErrorKind::not_found, what, on,
           fmt::format("no job {} that you may see", id));
  }
  const Action action = job->request.deployment    ? Action::deploy
                        : job->user == caller.user ? Action::steer_own
                                                   : Action::steer_any;
  require(caller, transaction, action, job->request.project, what, on);
  return *job;
}

// Why no machine of this site could ever run it; empty: one could.
std::string misfit(const JobRequest& request, const std::vector<Node>& nodes) {
  const auto fitting = std::count_if(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.cores >= request.cores && node.gpus >= request.gpus;
  });
  if (fitting >= request.nodes) return {};
  return fmt::format(
      "{} nodes with {} cores and {} GPUs are asked for; {} of the {} nodes here "
      "are such",
      request.nodes, request.cores, request.gpus, fitting, nodes.size());
}

std::string amount(const char* what, int64_t micro) {
  return fmt::format("{} {}", format_micro(micro), what);
}

// What is forecast against what is left of a budget.
std::string beyond_budget(const Budget& budget, const Spend& spent, const Forecast& forecast,
                          const std::string& whose) {
  if (const auto reached = limit_reached(budget, spent)) {
    return fmt::format("the budget of {} is used up: {} of {}", whose, format_micro(reached->spent),
                       amount(reached->what, reached->limit));
  }
  const auto check = [&](const char* what, const std::optional<int64_t>& limit, int64_t spent_now,
                         int64_t more) -> std::string {
    if (!limit || spent_now + more <= *limit) return {};
    return fmt::format("{} are forecast, and {} has {} left", amount(what, more), whose,
                       amount(what, *limit - spent_now));
  };
  std::string text = check("usd", budget.micro_usd, spent.micro_usd, forecast.micro_usd);
  if (text.empty()) text = check("kwh", budget.micro_kwh, spent.micro_kwh, forecast.micro_kwh);
  return text;
}

// Why its run folder cannot be had: two jobs would train into one run. Empty: it can.
std::string taken_folder(const Caller& caller, const JobRequest& request) {
  if (request.run_folder.empty()) return {};
  const auto id = live_job_of_run(caller.database, request.run_folder);
  if (!id) return {};
  const auto job = find_job(caller.database, *id);
  const bool visible = job && may(caller, Action::view, job->request.project);
  return fmt::format("the run folder '{}' is that of {}, which has not ended", request.run_folder,
                     visible ? name_of_job(*id) : "another job");
}

// Why the request cannot be written down and shown as it is; empty: it can.
std::string unwritable(const JobRequest& request) {
  for (const std::string* text : {&request.name, &request.folder, &request.run_folder}) {
    if (!is_utf8(*text)) {
      return fmt::format("'{}' is not UTF-8: the records cannot hold it", printable(*text));
    }
  }
  // It is printed on the terminals of those who list jobs.
  const std::string& name = request.name;
  if (name.empty() || name.size() > kLongestName || printable(name) != name ||
      name.find_first_of("\n\t") != std::string::npos) {
    return fmt::format(
        "'{}' is not a valid job name; write 1 to {} bytes in one line, without control "
        "characters",
        printable(name.substr(0, kLongestName)), kLongestName);
  }
  if (request.priority > kHighestPriority || request.priority < -kHighestPriority) {
    return fmt::format("priority {} is not from {} to {}", request.priority, -kHighestPriority,
                       kHighestPriority);
  }
  return {};
}

// Why the request is invalid for any user; empty: it is valid.
std::string objection(const Caller& caller, const JobRequest& request, const Project& project) {
  const auto beyond = [](const std::optional<int64_t>& limit, int64_t wanted) {
    return limit && wanted > *limit;
  };
  if (request.nodes < 1 || request.cores < 0 || request.gpus < 0 || request.max_attempts < 1) {
    return "nodes and attempts start at 1, cores and GPUs at 0";
  }
  if (request.command.empty()) return "the command is empty";
  if (request.deployment) {
    if (std::string text = deployment_objection(caller, request, project); !text.empty())
      return text;
  }
  if (std::string text = unwritable(request); !text.empty()) return text;
  if (request.deadline_ms != 0 && request.deadline_ms <= caller.now_ms) {
    return fmt::format("the deadline {} has passed",
                       format_utc(static_cast<double>(request.deadline_ms) / 1000));
  }
  if (const std::string text = taken_folder(caller, request); !text.empty()) {
    return text + "; give --run";
  }
  const Site site = read_site(caller.database);
  if (const auto rule = refusal(label_of(request), project.regions, site.policy)) return *rule;
  const std::vector<Node> nodes = all_nodes(caller.database);
  if (std::string text = misfit(request, nodes); !text.empty()) return text;
  if (beyond(project.max_nodes, request.nodes)) {
    return fmt::format("project '{}' may have {} nodes at once, and {} are asked for", project.name,
                       *project.max_nodes, request.nodes);
  }
  int64_t least_cores = std::numeric_limits<int64_t>::max();
  for (const Node& node : nodes) least_cores = std::min(least_cores, node.cores);
  const int64_t cores = request.nodes * (request.cores > 0 ? request.cores : least_cores);
  if (beyond(project.max_cores, cores)) {
    return fmt::format("project '{}' may have {} cores at once, and {} are asked for; give --cores",
                       project.name, *project.max_cores, cores);
  }
  if (beyond(project.max_jobs, 1)) {
    return fmt::format("project '{}' may run no jobs", project.name);
  }
  return beyond_budget(project.budget, spent_by_project(caller.database, project.name),
                       request.forecast, fmt::format("project '{}'", project.name));
}

// Refuses keys that the caller may not set: a mere submitter does not choose the ports and files of
// the account that runs the jobs.
void require_keys(const Caller& caller, Transaction& transaction, const JobRequest& request,
                  const std::string& on) {
  if (request.guarded_keys.empty() || may(caller, Action::run_controller, kAllProjects)) return;
  const std::vector<std::string> allowed = read_site(caller.database).allowed_keys;
  for (const std::string& key : request.guarded_keys) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    const GuardedKey* guarded = find_guarded_key(key);
    refuse(
        caller, transaction, ErrorKind::permission, "submit", on,
        fmt::format("{}: it {}; in a submitted recipe only an operator in all projects may set "
                    "it, and {} is none; an admin can allow it: tutti admin site --allow-keys {}",
                    key, guarded == nullptr ? "is guarded" : guarded->effect, caller.user, key));
  }
}

Job new_job(const Caller& caller, const JobRequest& request) {
  Job job;
  job.user = caller.user;
  job.request = request;
  job.priority = request.priority;
  job.reason = Reason::priority;
  job.submitted_ms = caller.now_ms;
  job.eligible_ms = caller.now_ms;
  return job;
}

std::vector<std::string> warnings_of(const Caller& caller, const JobRequest& request) {
  std::vector<std::string> warnings;
  const int64_t end = caller.now_ms + request.forecast.milliseconds;
  if (request.deadline_ms != 0 && end > request.deadline_ms) {
    warnings.push_back(fmt::format("started now it would be done {}, after its deadline",
                                   format_utc(static_cast<double>(end) / 1000)));
  }
  if (request.time_limit_ms != 0 && request.forecast.milliseconds > request.time_limit_ms) {
    warnings.emplace_back("the forecast is longer than the time limit: it will be stopped before");
  }
  if (std::string text = beyond_budget(request.budget, {}, request.forecast, "the job");
      !text.empty()) {
    warnings.push_back(text + ": it will be stopped before its end");
  }
  return warnings;
}

// What the audit log says of a deployment: what is deployed, and by whose approval.
void describe_deployment(const Caller& caller, const JobRequest& request, Json& detail) {
  const Deployment& deployment = *request.deployment;
  detail["deployment"] = deployment.name;
  detail["checkpoint"] = deployment.checkpoint;
  detail["manifest_sha256"] = deployment.manifest_sha256;
  detail["step"] = deployment.step;
  Json approved_by = Json::array();
  for (const Approval& each : approvals_in_project(caller, request)) {
    approved_by.push_back(each.who);
  }
  detail["approved_by"] = std::move(approved_by);
}

void move_for(const Caller& caller, Job& job, JobState to, Reason reason,
              const std::string& detail) {
  move_job(caller.database, job, to, reason, detail, caller.user, caller.now_ms, Json::object(),
           caller.client);
}

void request_stop(const Caller& caller, Job& job, Stop stop, const char* what) {
  job.stop = stop;
  job.told_ms = -1;
  move_for(caller, job, JobState::completing, reason_of(stop),
           fmt::format("{} asked by {}", what, caller.user));
}

}  // namespace

Submission submit(const Caller& caller, const JobRequest& request, bool dry_run) {
  Transaction transaction(caller.database);
  const char* what = request.deployment ? kDeploy : "submit";
  const std::string on = fmt::format("project {}", request.project);
  const auto project = find_project(caller.database, request.project);
  if (!project || !may(caller, Action::view, request.project)) {
    refuse(caller, transaction, ErrorKind::permission, what, on,
           fmt::format("{} may not {} into project '{}'; an admin can grant a role there",
                       caller.user, what, request.project));
  }
  require(caller, transaction, request.deployment ? Action::deploy : Action::submit,
          request.project, what, on);
  if (request.priority > 0) {
    require(caller, transaction, Action::raise_priority, request.project, what, on);
  }
  if (!request.client_key.empty()) {
    if (const auto before = find_job_by_key(caller.database, caller.user, request.client_key)) {
      if (before->request.command != request.command ||
          before->request.project != request.project) {
        refuse(caller, transaction, ErrorKind::usage, what, on,
               fmt::format("key '{}' is that of job {}, which is another request",
                           request.client_key, before->id));
      }
      return {*before, true, {}};
    }
  }
  require_keys(caller, transaction, request, on);
  const bool is_open = request.deployment && !listens_on_loopback(*request.deployment);
  if (is_open && !may(caller, Action::run_controller, kAllProjects)) {
    refuse(
        caller, transaction, ErrorKind::permission, what, on,
        fmt::format("--address {}: it opens a port of the node to others, which only an operator "
                    "in all projects may do, and {} is none; use 127.0.0.1 behind a proxy",
                    request.deployment->address, caller.user));
  }
  if (const std::string why = objection(caller, request, *project); !why.empty()) {
    refuse(caller, transaction, ErrorKind::usage, what, on, why);
  }
  Submission submission{new_job(caller, request), false, warnings_of(caller, request)};
  if (dry_run) return submission;
  submission.job.id = insert_job(caller.database, submission.job);
  Json detail = {{"project", request.project},
                 {"command", join(request.command, " ")},
                 {"request", to_json(request)}};
  if (request.deployment) describe_deployment(caller, request, detail);
  note(caller, what, name_of_job(submission.job.id), true, std::move(detail));
  transaction.commit();
  return submission;
}

Job cancel(const Caller& caller, int64_t id) {
  Transaction transaction(caller.database);
  Job job = job_to_steer(caller, transaction, id, "cancel");
  if (job.state == JobState::pending) {
    job.ended_ms = caller.now_ms;
    move_for(caller, job, JobState::cancelled, Reason::user_request, "cancelled by " + caller.user);
  } else if (job.state == JobState::completing) {
    // It is on its way out; what follows is changed.
    job.stop = Stop::cancel;
    job.reason = Reason::user_request;
    update_job(caller.database, job);
    note(caller, "cancel", name_of_job(id), true);
  } else if (owns_nodes(job.state)) {
    request_stop(caller, job, Stop::cancel, "cancel");
  } else {
    refuse(caller, transaction, ErrorKind::usage, "cancel", name_of_job(id),
           fmt::format("job {} has ended: {}", id, state_name(job.state)));
  }
  transaction.commit();
  return job;
}

Job requeue(const Caller& caller, int64_t id) {
  Transaction transaction(caller.database);
  Job job = job_to_steer(caller, transaction, id, "requeue");
  if (job.state == JobState::running || job.state == JobState::configuring) {
    request_stop(caller, job, Stop::requeue, "requeue");
  } else if (is_legal(job.state, JobState::requeued) && is_final(job.state)) {
    if (job.request.deadline_ms != 0 && job.request.deadline_ms <= caller.now_ms) {
      refuse(caller, transaction, ErrorKind::usage, "requeue", name_of_job(id),
             fmt::format("the deadline of job {} has passed; submit it again", id));
    }
    const Spend spent = spent_by_job(caller.database, id);
    if (const auto reached = limit_reached(job.request.budget, spent)) {
      refuse(caller, transaction, ErrorKind::usage, "requeue", name_of_job(id),
             fmt::format("the budget of job {} is used up: {} of {}; submit it again", id,
                         format_micro(reached->spent), amount(reached->what, reached->limit)));
    }
    if (const std::string text = taken_folder(caller, job.request); !text.empty()) {
      refuse(caller, transaction, ErrorKind::usage, "requeue", name_of_job(id),
             text + "; requeue it after that");
    }
    if (job.request.deployment) {
      const auto project = find_project(caller.database, job.request.project);
      const std::string text =
          project ? requeue_objection(caller, job.request, *project) : "its project is gone";
      if (!text.empty()) {
        refuse(caller, transaction, ErrorKind::usage, "requeue", name_of_job(id), text);
      }
    }
    job.attempts = 0;
    job.stop = Stop::none;
    job.eligible_ms = caller.now_ms;
    job.ended_ms = 0;
    job.exit_code.reset();
    move_for(caller, job, JobState::requeued, Reason::user_request, "requeued by " + caller.user);
    move_for(caller, job, JobState::pending, Reason::priority, "");
  } else {
    refuse(caller, transaction, ErrorKind::usage, "requeue", name_of_job(id),
           fmt::format("job {} is {}: there is nothing to requeue", id, state_name(job.state)));
  }
  transaction.commit();
  return job;
}

Job set_held(const Caller& caller, int64_t id, bool held) {
  const char* what = held ? "hold" : "release";
  Transaction transaction(caller.database);
  Job job = job_to_steer(caller, transaction, id, what);
  if (job.state != JobState::pending) {
    refuse(
        caller, transaction, ErrorKind::usage, what, name_of_job(id),
        fmt::format("job {} is {}: only a job that waits can be held", id, state_name(job.state)));
  }
  job.held = held;
  job.reason = held ? Reason::held : Reason::priority;
  update_job(caller.database, job);
  note(caller, what, name_of_job(id), true);
  transaction.commit();
  return job;
}

Job visible_job(const Caller& caller, int64_t id) {
  auto job = find_job(caller.database, id);
  if (!job || !may(caller, Action::view, job->request.project)) {
    fail(ErrorKind::not_found, "no job {} that you may see", id);
  }
  return *job;
}

std::vector<Job> visible_jobs(const Caller& caller, bool live_only, int64_t most) {
  JobFilter filter;
  filter.which = live_only ? JobFilter::Which::live : JobFilter::Which::all;
  filter.most = most;
  return visible_jobs(caller, filter);
}

std::vector<std::string> visible_projects(const Caller& caller) {
  return projects_where(caller, Action::view);
}

std::vector<std::string> visible_users(const Caller& caller) {
  if (may(caller, Action::run_controller, kAllProjects)) return all_users(caller.database);
  const std::vector<std::string> projects = visible_projects(caller);
  const std::set<std::string> seen(projects.begin(), projects.end());
  std::set<std::string> users = {caller.user};
  for (const Member& member : all_members(caller.database)) {
    const bool anywhere = member.project == kAllProjects && !projects.empty();
    if (anywhere || seen.count(member.project) > 0) users.insert(member.user);
  }
  Query query = caller.database.query("SELECT DISTINCT user, project FROM jobs");
  while (query.next()) {
    if (seen.count(query.text(1)) > 0) users.insert(query.text(0));
  }
  return {users.begin(), users.end()};
}

}  // namespace tutti::control
