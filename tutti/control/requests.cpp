#include "tutti/control/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/audit.h"
#include "tutti/control/job_table.h"
#include "tutti/control/ledger.h"

namespace tutti::control {
namespace {

std::string name_of_job(int64_t id) { return fmt::format("job {}", id); }

bool may(const Caller& caller, Action action, const std::string& project) {
  const std::string& where = is_about_everything(action) ? kAllProjects : project;
  return allows(role_of(caller.database, caller.user, where), action);
}

void note(const Caller& caller, const char* what, const std::string& on, bool allowed,
          Json detail = Json::object()) {
  append_audit(caller.database, {caller.now_ms, caller.user, what, on, allowed, std::move(detail)});
}

// Ends the transaction with the line of a refusal, and throws.
[[noreturn]] void refuse(const Caller& caller, Transaction& transaction, ErrorKind kind,
                         const char* what, const std::string& on, const std::string& why) {
  note(caller, what, on, false, {{"why", why}});
  transaction.commit();
  throw Error(kind, why);
}

void require(const Caller& caller, Transaction& transaction, Action action,
             const std::string& project, const char* what, const std::string& on) {
  if (may(caller, action, project)) return;
  const std::string where =
      is_about_everything(action) ? "all projects" : fmt::format("project '{}'", project);
  refuse(caller, transaction, ErrorKind::permission, what, on,
         fmt::format("{} may not {} in {}; an admin can grant a role that may", caller.user,
                     action_name(action), where));
}

// A job that the caller may see, for an action that steers it.
Job job_to_steer(const Caller& caller, Transaction& transaction, int64_t id, const char* what) {
  auto job = find_job(caller.database, id);
  const std::string on = name_of_job(id);
  if (!job || !may(caller, Action::view, job->request.project)) {
    refuse(caller, transaction, ErrorKind::not_found, what, on,
           fmt::format("there is no job {} among those you may see", id));
  }
  const Action action = job->user == caller.user ? Action::steer_own : Action::steer_any;
  require(caller, transaction, action, job->request.project, what, on);
  return *job;
}

// Why no machine of this place could ever run it; empty: one could.
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

// Why the request cannot be taken, whoever asks; empty: it can.
std::string objection(const Caller& caller, const JobRequest& request, const Project& project) {
  const auto beyond = [](const std::optional<int64_t>& limit, int64_t wanted) {
    return limit && wanted > *limit;
  };
  if (request.nodes < 1 || request.cores < 0 || request.gpus < 0 || request.max_attempts < 1) {
    return "nodes and attempts start at 1, cores and GPUs at 0";
  }
  if (request.command.empty()) return "there is no command to run";
  if (request.deadline_ms != 0 && request.deadline_ms <= caller.now_ms) {
    return fmt::format("the deadline {} has passed",
                       format_utc(static_cast<double>(request.deadline_ms) / 1000));
  }
  const Site site = read_site(caller.database);
  if (const auto rule =
          refusal(parse_data_class(request.data_class), project.regions, site.place)) {
    return *rule;
  }
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
  std::string text = beyond_budget(project.budget, spent_by_project(caller.database, project.name),
                                   request.forecast, fmt::format("project '{}'", project.name));
  if (text.empty()) text = beyond_budget(request.budget, {}, request.forecast, "the job");
  return text;
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
  return warnings;
}

void tell_to_stop(const Caller& caller, Job& job, Stop stop, const char* what) {
  job.stop = stop;
  job.told_ms = -1;
  move_job(caller.database, job, JobState::completing, reason_of(stop),
           fmt::format("{} asked by {}", what, caller.user), caller.user, caller.now_ms);
}

// A change of the place or of who may do what.
template <typename Change>
void change(const Caller& caller, Action action, const std::string& project, const char* what,
            const std::string& on, Json detail, Change apply) {
  Transaction transaction(caller.database);
  require(caller, transaction, action, project, what, on);
  apply(transaction);
  note(caller, what, on, true, std::move(detail));
  transaction.commit();
}

void check_name(const std::string& name, const char* what) {
  const bool plain = !name.empty() && name.size() <= 64 &&
                     name.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789._-@") == std::string::npos;
  if (!plain) {
    fail(ErrorKind::usage, "'{}' is no name for a {}; write 1 to 64 letters, digits, . _ - @",
         printable(name), what);
  }
}

}  // namespace

void found_place(const Caller& caller, const Node& node, const Site& site) {
  Transaction transaction(caller.database);
  if (!all_users(caller.database).empty()) return;
  check_name(caller.user, "user");
  add_user(caller.database, caller.user, caller.now_ms);
  set_member(caller.database, {caller.user, kAllProjects, Role::admin});
  Project project;
  project.name = kDefaultProject;
  write_project(caller.database, project, caller.now_ms);
  write_node(caller.database, node);
  write_site(caller.database, site);
  note(caller, "found", "place " + site.place.name, true,
       {{"node", node.name}, {"cores", node.cores}, {"admin", caller.user}});
  transaction.commit();
}

void authorize(const Caller& caller, Action action, const std::string& project,
               const std::string& on) {
  Transaction transaction(caller.database);
  require(caller, transaction, action, project, action_name(action), on);
}

Submission submit(const Caller& caller, const JobRequest& request, bool dry_run) {
  Transaction transaction(caller.database);
  const std::string on = fmt::format("project {}", request.project);
  const auto project = find_project(caller.database, request.project);
  if (!project || !may(caller, Action::view, request.project)) {
    refuse(caller, transaction, ErrorKind::permission, "submit", on,
           fmt::format("{} may not submit into project '{}'; an admin can grant a role there",
                       caller.user, request.project));
  }
  require(caller, transaction, Action::submit, request.project, "submit", on);
  if (request.priority > 0) {
    require(caller, transaction, Action::raise_priority, request.project, "submit", on);
  }
  if (!request.client_key.empty()) {
    if (const auto before = find_job_by_key(caller.database, caller.user, request.client_key)) {
      if (before->request.command != request.command ||
          before->request.project != request.project) {
        refuse(caller, transaction, ErrorKind::usage, "submit", on,
               fmt::format("key '{}' is that of job {}, which is another request",
                           request.client_key, before->id));
      }
      return {*before, true, {}};
    }
  }
  if (const std::string why = objection(caller, request, *project); !why.empty()) {
    refuse(caller, transaction, ErrorKind::usage, "submit", on, why);
  }
  Submission submission{new_job(caller, request), false, warnings_of(caller, request)};
  if (dry_run) return submission;
  submission.job.id = insert_job(caller.database, submission.job);
  note(caller, "submit", name_of_job(submission.job.id), true,
       {{"project", request.project}, {"command", join(request.command, " ")}});
  transaction.commit();
  return submission;
}

Job cancel(const Caller& caller, int64_t id) {
  Transaction transaction(caller.database);
  Job job = job_to_steer(caller, transaction, id, "cancel");
  if (job.state == JobState::pending) {
    job.ended_ms = caller.now_ms;
    move_job(caller.database, job, JobState::cancelled, Reason::user_request,
             "cancelled by " + caller.user, caller.user, caller.now_ms);
  } else if (job.state == JobState::completing) {
    // It is on its way out; what follows is changed.
    job.stop = Stop::cancel;
    job.reason = Reason::user_request;
    update_job(caller.database, job);
    note(caller, "cancel", name_of_job(id), true);
  } else if (owns_nodes(job.state)) {
    tell_to_stop(caller, job, Stop::cancel, "cancel");
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
    tell_to_stop(caller, job, Stop::requeue, "requeue");
  } else if (is_legal(job.state, JobState::requeued) && is_final(job.state)) {
    if (job.request.deadline_ms != 0 && job.request.deadline_ms <= caller.now_ms) {
      refuse(caller, transaction, ErrorKind::usage, "requeue", name_of_job(id),
             fmt::format("the deadline of job {} has passed; submit it anew", id));
    }
    job.attempts = 0;
    job.stop = Stop::none;
    job.eligible_ms = caller.now_ms;
    job.ended_ms = 0;
    job.exit_code.reset();
    move_job(caller.database, job, JobState::requeued, Reason::user_request,
             "requeued by " + caller.user, caller.user, caller.now_ms);
    move_job(caller.database, job, JobState::pending, Reason::priority, "", caller.user,
             caller.now_ms);
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
    fail(ErrorKind::not_found, "there is no job {} among those you may see", id);
  }
  return *job;
}

std::vector<Job> visible_jobs(const Caller& caller, bool live_only, int64_t most) {
  const std::vector<std::string> projects = visible_projects(caller);
  std::vector<Job> jobs = live_only
                              ? live_jobs(caller.database)
                              : newest_jobs(caller.database, "", std::numeric_limits<int>::max());
  std::erase_if(jobs, [&](const Job& job) {
    return std::find(projects.begin(), projects.end(), job.request.project) == projects.end();
  });
  if (static_cast<int64_t>(jobs.size()) > most) jobs.resize(static_cast<size_t>(most));
  return jobs;
}

std::vector<std::string> visible_projects(const Caller& caller) {
  std::vector<std::string> names;
  for (const Project& project : all_projects(caller.database)) {
    if (may(caller, Action::view, project.name)) names.push_back(project.name);
  }
  return names;
}

void create_user(const Caller& caller, const std::string& user) {
  check_name(user, "user");
  change(caller, Action::manage_users, "", "create user", "user " + user, Json::object(),
         [&](Transaction& transaction) {
           const auto users = all_users(caller.database);
           if (std::find(users.begin(), users.end(), user) != users.end()) {
             refuse(caller, transaction, ErrorKind::usage, "create user", "user " + user,
                    fmt::format("user '{}' is there", user));
           }
           add_user(caller.database, user, caller.now_ms);
         });
}

void grant(const Caller& caller, const Member& member) {
  const bool all = member.project == kAllProjects;
  const std::string on = fmt::format("project {}", member.project);
  change(caller, all ? Action::manage_users : Action::manage_projects, member.project, "grant", on,
         {{"user", member.user}, {"role", role_name(member.role)}}, [&](Transaction& transaction) {
           if (!has_user(caller.database, member.user)) {
             refuse(caller, transaction, ErrorKind::usage, "grant", on,
                    fmt::format("user '{}' is not known; known: {}", member.user,
                                join(all_users(caller.database), ", ")));
           }
           if (!all && !find_project(caller.database, member.project)) {
             refuse(caller, transaction, ErrorKind::usage, "grant", on,
                    fmt::format("project '{}' is not known", member.project));
           }
           set_member(caller.database, member);
         });
}

void revoke(const Caller& caller, const std::string& user, const std::string& project) {
  const std::string on = fmt::format("project {}", project);
  const Action action = project == kAllProjects ? Action::manage_users : Action::manage_projects;
  change(caller, action, project, "revoke", on, {{"user", user}}, [&](Transaction& transaction) {
    remove_member(caller.database, user, project);
    const std::vector<Member> members = all_members(caller.database);
    const bool ruled = std::any_of(members.begin(), members.end(), [](const Member& member) {
      return member.project == kAllProjects && member.role == Role::admin;
    });
    if (!ruled) {
      // Undo before the refusal is written: the transaction carries only its line.
      set_member(caller.database, {user, project, Role::admin});
      refuse(caller, transaction, ErrorKind::usage, "revoke", on,
             "somebody must stay admin of all projects");
    }
  });
}

void define_project(const Caller& caller, const Project& project) {
  check_name(project.name, "project");
  const bool known = find_project(caller.database, project.name).has_value();
  Json detail = {{"regions", project.regions}, {"budget", to_json(project.budget)}};
  if (project.max_nodes) detail["max_nodes"] = *project.max_nodes;
  if (project.max_cores) detail["max_cores"] = *project.max_cores;
  if (project.max_jobs) detail["max_jobs"] = *project.max_jobs;
  change(caller, known ? Action::manage_projects : Action::manage_users, project.name,
         "define project", "project " + project.name, std::move(detail),
         [&](Transaction&) { write_project(caller.database, project, caller.now_ms); });
}

void define_site(const Caller& caller, const Site& site) {
  change(caller, Action::manage_users, "", "define site", "place " + site.place.name,
         {{"region", site.place.region},
          {"highest", data_class_name(site.place.highest)},
          {"usd_per_node_hour", format_micro(site.micro_usd_per_node_hour)},
          {"milliwatts_per_node", site.milliwatts_per_node}},
         [&](Transaction&) { write_site(caller.database, site); });
}

void define_node(const Caller& caller, const Node& node) {
  check_name(node.name, "node");
  change(caller, Action::run_controller, "", "define node", "node " + node.name,
         {{"cores", node.cores}, {"gpus", node.gpus}, {"drained", node.drained}},
         [&](Transaction&) { write_node(caller.database, node); });
}

std::string issue_token(const Caller& caller, const std::string& user, int64_t expires_ms) {
  Transaction transaction(caller.database);
  const std::string on = "user " + user;
  if (user != caller.user) {
    require(caller, transaction, Action::manage_users, "", "issue token", on);
  }
  if (!has_user(caller.database, user)) {
    refuse(caller, transaction, ErrorKind::usage, "issue token", on,
           fmt::format("user '{}' is not known", user));
  }
  std::string token = add_token(caller.database, user, caller.now_ms, expires_ms);
  note(caller, "issue token", on, true, {{"id", split(token, '-')[1]}, {"expires_ms", expires_ms}});
  transaction.commit();
  return token;
}

void withdraw_token(const Caller& caller, const std::string& id) {
  Transaction transaction(caller.database);
  const std::string on = "token " + id;
  const auto tokens = all_tokens(caller.database);
  const auto token = std::find_if(tokens.begin(), tokens.end(),
                                  [&](const TokenInfo& each) { return each.id == id; });
  if (token == tokens.end() || token->user != caller.user) {
    require(caller, transaction, Action::manage_users, "", "withdraw token", on);
  }
  if (token == tokens.end()) {
    refuse(caller, transaction, ErrorKind::usage, "withdraw token", on,
           fmt::format("there is no token '{}'", printable(id)));
  }
  revoke_token(caller.database, id);
  note(caller, "withdraw token", on, true, {{"user", token->user}});
  transaction.commit();
}

}  // namespace tutti::control
